"""Tables over records that no broker writes: numbers that are none, huge offsets, bodies and names of any bytes."""

from __future__ import annotations

import zlib
from pathlib import Path
from random import Random

import pytest

from spark_mq import MessageStore
from spark_mq.format.record import Record, encode_blank
from spark_mq.lifecycle.delayed import delayed_rows
from spark_mq.lifecycle.transactions import transaction_rows
from spark_mq.testing import write_store

SEGMENT_SIZE = 1 << 16
TOPICS = (
    b"RMQ_SYS_TRANS_HALF_TOPIC",
    b"RMQ_SYS_TRANS_OP_HALF_TOPIC",
    b"TRANS_CHECK_MAX_TIME_TOPIC",
    b"SCHEDULE_TOPIC_XXXX",
    b"rmq_sys_wheel_timer",
    b"orders",
    b"\xff\xfe",
)
NAMES = (
    *(b"UNIQ_KEY", b"REAL_TOPIC", b"REAL_QID", b"PGROUP", b"TRANSACTION_CHECK_TIMES", b"TRAN_PREPARED_QUEUE_OFFSET"),
    *(b"CHECK_IMMUNITY_TIME_IN_SECONDS", b"TIMER_OUT_MS", b"TIMER_ROLL_TIMES", b"TIMER_DEL_UNIQKEY", b"TAGS", b"DELAY"),
)
VALUES = (b"1", b"0", b"-1", b"+7", b"99999999999999999999", b"x", b"\xff", b"\0", b"orders", b"orders+k", b"k", b"d")
NUMBERS = (0, 1, 2, 1000, -1, (1 << 63) - 1, -(1 << 63))
BODIES = (b"0", b"0,1,2,", b"1,x,\xff,", b"", b"9" * 30, b"," * 50, b"-5,")


def record(random: Random, offset: int) -> Record:
    names = random.sample(NAMES, random.randint(0, len(NAMES)))
    body = random.choice(BODIES)
    return Record(
        random.choice(TOPICS),
        queue_id=random.choice((0, 1, -1, 17, (1 << 31) - 1)),
        queue_offset=random.choice(NUMBERS),
        commit_log_offset=offset,
        sys_flag=random.choice((0, 4, 8, 12, 1)),
        born_timestamp=random.choice(NUMBERS),
        store_timestamp=random.choice(NUMBERS),
        prepared_transaction_offset=random.choice((*NUMBERS, offset // 2)),
        body=body,
        body_crc=zlib.crc32(body) & 0x7FFFFFFF,
        properties=b"".join(name + b"\1" + random.choice(VALUES) + b"\2" for name in names),
    )


@pytest.mark.parametrize("seed", range(40))
def test_hostile_records_give_rows_and_no_traceback(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    segments = {}
    for base in (0, SEGMENT_SIZE):
        data = b""
        while len(data) < SEGMENT_SIZE - 2000:
            data += record(random, base + len(data)).encode()
        segments[base] = data + encode_blank(SEGMENT_SIZE - len(data))
    location = write_store(tmp_path / "store", segments, SEGMENT_SIZE)
    with MessageStore(str(location)) as store:
        for rows in (transaction_rows(store), delayed_rows(store)):
            rows.validate(full=True)
            assert rows.num_rows
