from __future__ import annotations

import random
from bisect import bisect_left
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.errors import OptionError
from spark_mq.format import dispatch
from spark_mq.format.consume_queue import PRE_BLANK_SIZE, UNIT_DTYPE, UNIT_SIZE, is_live, pre_blank, queue_file_name
from spark_mq.format.dispatch import fails_dispatch
from spark_mq.format.kernels import dispatch as kernels
from spark_mq.format.kernels.dispatch import (
    DispatchedUnits,
    dispatch_units,
    grouped,
    has_unit,
    is_inner_batch,
    lead_to,
    light_units,
    parse_delay_levels,
)
from spark_mq.format.kernels.queue_table import QueueTable, _queue_hash, bisect_each
from spark_mq.format.record import Record
from spark_mq.format.system_topic import DEFAULT_DELAY_LEVELS
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.testing.plain_queue import Unit, light_queues, tags_code
from spark_mq.testing.strategies import mixed_bytes
from tests.support.kernels import array, examples, frames_of, live_frames
from tests.support.stores import RealStore, Unpack, usual_stores

LEVELS = parse_delay_levels(DEFAULT_DELAY_LEVELS)
SCHEDULE = b"SCHEDULE_TOPIC_XXXX"
STORES = usual_stores()


def queue_units(store: RealStore, folder: Path, topic: str, queue_id: int, low: int, high: int) -> list[Unit | None]:
    """Units `low` ... `high` - 1 of a queue as they lie in the broker's files, None for a pre-blank one."""
    files = sorted((folder / "consumequeue" / topic / str(queue_id)).iterdir())
    first = int(files[0].name) // UNIT_SIZE
    units = np.frombuffer(b"".join(file.read_bytes() for file in files), UNIT_DTYPE)
    wanted = (tuple(unit.tolist()) for unit in units[low - first : high - first])
    return [None if unit == (0, PRE_BLANK_SIZE, 0) else unit for unit in wanted]


def dispatched(store: RealStore, folder: Path) -> dict[tuple[str, int], dict[int, Unit]]:
    """The units that this package makes of a store's messages, by queue and queue offset."""
    levels = BrokerConf.load(Location.resolve(str(store.broker_conf))).message_delay_level
    queues = QueueTable()
    result: dict[tuple[str, int], dict[int, Unit]] = {}
    for data, frames in live_frames(store, folder):
        units = dispatch_units(data, frames[has_unit(frames)], queues, parse_delay_levels(levels))
        for number, queue_offset, *unit in zip(
            units.queue_number.tolist(),
            units.queue_offset.tolist(),
            units.commit_log_offset.tolist(),
            units.store_size.tolist(),
            units.tags_code.tolist(),
            strict=True,
        ):
            queue = queues.topic(number).decode(), int(queues.queue_ids()[number])
            result.setdefault(queue, {})[queue_offset] = (unit[0], unit[1], unit[2])
    return result


SOUND = [store for store in STORES if not store.name.startswith(("abort", "killed", "lagging"))]


@pytest.mark.parametrize("store", SOUND, ids=str)
def test_units_are_those_in_the_broker_s_own_queues(store: RealStore, unpacked: Unpack) -> None:
    """All of them, and no others."""
    folder = unpacked(store)
    made = dispatched(store, folder)
    for fact in store.facts("queue"):
        queue = fact["topic"], fact["queueId"]
        of_queue = made.pop(queue, {})
        assert [of_queue.pop(offset, None) for offset in range(fact["min"], fact["max"])] == queue_units(
            store, folder, *queue, fact["min"], fact["max"]
        ), queue
        assert of_queue == {}, queue
    assert made == {}


@pytest.mark.parametrize(
    ("store", "tree"),
    [(store, tree) for store in STORES for tree in ("recovered", "rebuilt") if store.has(tree)],
    ids=str,
)
def test_units_are_those_of_the_broker_s_recovery(
    store: RealStore, tree: str, unpacked: Unpack, tmp_path: Path
) -> None:
    folder = store.unpack(tmp_path, tree)
    made = dispatched(store, unpacked(store))
    compared = 0
    for fact in store.facts("queue"):
        queue = fact["topic"], fact["queueId"]
        if fact["min"] < fact["max"]:
            expected = queue_units(store, folder, *queue, fact["min"], fact["max"])
            assert [made[queue].get(offset) for offset in range(fact["min"], fact["max"])] == expected, queue
            compared += sum(unit is not None for unit in expected)
    assert compared == sum(len(units) for units in made.values())


def code_of(record: Record, levels: str = DEFAULT_DELAY_LEVELS) -> int:
    data = record.encode()
    units = dispatch_units(array(data), frames_of(data), QueueTable(), parse_delay_levels(levels))
    return int(units.tags_code[0])


DELAYS = [b"0", b"1", b"3", b"18", b"19", b"+2", b"-1", b"x", b"2147483647", b"2147483648", b""]


@settings(max_examples=examples(300))
@given(
    st.sampled_from([SCHEDULE, SCHEDULE + b"X", SCHEDULE[:-1], b"T"]),
    st.lists(st.sampled_from([b"TAGS\1", b"TAGS", b"\2", b"a"]) | mixed_bytes, max_size=5).map(b"".join),
    st.sampled_from([b"", *(b"\2DELAY\1" + delay + b"\2" for delay in DELAYS)]),
)
def test_the_tags_code_is_that_of_the_plain_model(topic: bytes, properties: bytes, delay: bytes) -> None:
    record = Record(topic, properties=properties + delay, store_timestamp=1_700_000_000_000)
    assert code_of(record) == tags_code(record, LEVELS.tolist())


def test_units_stay_as_they_are_when_the_frames_are_used_again() -> None:
    """A reader fills the same frames with the next chunk; of one frame, a view is as contiguous as a copy."""
    data = Record(b"T", body=b"first").encode()
    frames = frames_of(data)
    units = dispatch_units(array(data), frames, QueueTable(), LEVELS)
    frames.store_size[:] = 7
    assert units.store_size.tolist() == [len(data)]


@pytest.mark.parametrize(
    ("sys_flag", "expected"), [(0, True), (4, False), (8, True), (12, False), (0x80, False), (1, True)]
)
def test_only_ordinary_and_committed_messages_become_a_unit(sys_flag: int, expected: bool) -> None:
    frames = frames_of(Record(b"T", sys_flag=sys_flag).encode())
    assert has_unit(frames).tolist() == [expected]
    assert is_inner_batch(frames).tolist() == [sys_flag == 0x80]


NAMES = st.sampled_from(["%LMQ%a", "%LMQ%b", "%LMQ%$p$l", "%LMQ%a/b", "%LMQ", "other", ""])
OFFSETS = st.sampled_from(["0", "7", "123456789012", "", "x", "-1"])
LISTS = st.lists(st.tuples(NAMES, OFFSETS), max_size=4)


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["T", "%RETRY%g", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXXY"]),
            LISTS,
            st.sampled_from(["", ",", ",,"]),
        ),
        max_size=5,
    )
)
def test_light_queues_get_the_units_of_their_messages(messages: list[tuple[str, list[tuple[str, str]], str]]) -> None:
    data, expected, fail = b"", [], []
    for topic, pairs, rest in messages:
        names, offsets = ",".join(name for name, _ in pairs) + rest, ",".join(at for _, at in pairs)
        properties = f"TAGS\1a\2INNER_MULTI_DISPATCH\1{names}\2INNER_MULTI_QUEUE_OFFSET\1{offsets}\2".encode()
        record = Record(topic.encode(), queue_id=3, commit_log_offset=len(data), properties=properties)
        found = light_queues(topic, names, offsets)
        expected += [(name, 0, at, len(data)) for name, at in found]
        fail.append(fails_dispatch(record))
        if not topic.startswith(("%RETRY%", "rmq_sys_")) and topic != "SCHEDULE_TOPIC_XXXX":
            assert list(dispatch.light_queues(record).items()) == found
            named = {name for name in names.split(",") if name.startswith("%LMQ%") and "/" not in name}
            assert set(dispatch.undispatched_queues(record)) == named - {name for name, _ in found}
        data += record.encode()
    queues, frames = QueueTable(), frames_of(data)
    own = dispatch_units(array(data), frames, queues, LEVELS)
    light = light_units(array(data), frames, own, queues)
    names_of = [queues.topic(number).decode() for number in light.queue_number]
    ids = queues.queue_ids()[light.queue_number].tolist()
    rows = zip(names_of, ids, light.queue_offset.tolist(), light.commit_log_offset.tolist(), strict=True)
    assert list(rows) == expected
    assert kernels.light_queues(array(data), frames, queues)[-1].tolist() == fail
    of_own = dict(zip(own.commit_log_offset.tolist(), own.store_size.tolist(), strict=True))
    assert light.store_size.tolist() == [of_own[offset] for _, _, _, offset in expected]


@pytest.mark.parametrize(
    ("names", "offsets", "fails"),
    [
        ("plain,%LMQ%a", ",3", True),  # as `LmqDispatch.wrapLmqDispatch`@5.3.3 writes them: no offset of a plain topic
        ("%LMQ%a,plain", "3,", False),  # Java's `split` drops the empty end: the numbers of pieces differ
        ("a/b,%LMQ%a", ",3", False),
        ("%LMQ%a,%LMQ%b", "3,4", False),
        ("%LMQ%a,%LMQ%b", "3,x", True),
    ],
)
def test_a_dispatch_fails_by_an_offset_that_is_not_a_number(names: str, offsets: str, fails: bool) -> None:
    properties = f"INNER_MULTI_DISPATCH\1{names}\2INNER_MULTI_QUEUE_OFFSET\1{offsets}\2".encode()
    assert fails_dispatch(Record(b"T", properties=properties)) == fails
    assert not fails_dispatch(Record(b"%RETRY%g", properties=properties))


def test_units_are_put_together_and_taken() -> None:
    data = Record(b"A", queue_offset=3).encode()
    units = dispatch_units(array(data), frames_of(data), QueueTable(), LEVELS)
    both = DispatchedUnits.concatenate([units, units])
    assert both.queue_offset.tolist() == [3, 3]
    assert both.take(np.array([1])).store_size.tolist() == [len(data)]


@given(st.lists(st.lists(st.integers(0, 4), max_size=8), min_size=1, max_size=4))
def test_units_are_grouped_by_queue_in_the_order_of_the_log(parts: list[list[int]]) -> None:
    """The unit with number n has the values 10 n, 10 n + 1, and so on, the tags code a negative one."""
    numbers, made = iter(range(sum(map(len, parts)))), []
    for queues in parts:
        n = np.array([next(numbers) for _ in queues], np.int64)
        values = 10 * n, 10 * n + 1, (10 * n + 2).astype(np.int32), -10 * n - 3, 10 * n + 4
        made.append(DispatchedUnits(np.array(queues, np.int32), *values))
    units = grouped(made, 6)
    expected = sorted((queue, n) for n, queue in enumerate(queue for queues in parts for queue in queues))
    assert list(zip(units.queue_number.tolist(), (units.queue_offset // 10).tolist(), strict=True)) == expected
    assert units.store_timestamp.tolist() == [10 * n + 4 for _, n in expected]
    assert units.units.tolist() == [(10 * n + 1, 10 * n + 2, -10 * n - 3) for _, n in expected]


def numbered(queues: list[tuple[bytes, int]], step: int) -> tuple[QueueTable, list[int]]:
    """Numbers of the queues, asked for `step` at a time."""
    data = b""
    for topic, queue_id in queues:
        data += Record(topic, queue_id=queue_id, commit_log_offset=len(data)).encode()
    frames, table, numbers = frames_of(data), QueueTable(), []
    for first in range(0, len(queues), step):
        numbers += table.numbers(array(data), frames[first : first + step]).tolist()
    return table, numbers


def assert_numbered(queues: list[tuple[bytes, int]], step: int) -> None:
    table, numbers = numbered(queues, step)
    distinct = list(dict.fromkeys(queues))
    assert numbers == [distinct.index(queue) if len(distinct) < 500 else PLACES[queue] for queue in queues]
    assert table.count == len(distinct)
    assert [(table.topic(number), int(table.queue_ids()[number])) for number in range(table.count)] == distinct


PLACES: dict[tuple[bytes, int], int] = {}


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.tuples(st.sampled_from([b"", b"A", b"AB", b"B", b"\xff"]), st.sampled_from([-1, 0, 1, 1 << 30])), max_size=60
    ),
    st.integers(1, 40),
)
def test_queues_are_numbered_as_they_are_met(queues: list[tuple[bytes, int]], step: int) -> None:
    assert_numbered(queues, step)


@pytest.mark.parametrize("step", [1000, 100_000])
def test_many_thousand_queues_are_numbered(step: int) -> None:
    generator = random.Random(1)
    queues = [(b"Topic-%d" % generator.randrange(3000), generator.randrange(8)) for _ in range(examples(20_000))]
    PLACES.clear()
    for queue in queues:
        PLACES.setdefault(queue, len(PLACES))
    assert_numbered(queues, step)


def test_queues_whose_hashes_are_equal_are_told_apart() -> None:
    by_hash: dict[int, list[tuple[bytes, int]]] = {}
    for number in range(examples(100_000)):
        topic = b"%d" % number
        by_hash.setdefault(int(_queue_hash(array(topic), 0, len(topic), 0)) & 63, []).append((topic, 0))
    collisions = max(by_hash.values(), key=len)[:300]
    assert_numbered(collisions + collisions[::-1], 50)


def test_topics_of_a_table_are_given_with_their_ends() -> None:
    table, _ = numbered([(b"A", 0), (b"BCD", 1), (b"A", 1)], 10)
    topics, ends = table.topics()
    assert (topics.tobytes(), ends.tolist()) == (b"ABCDA", [0, 1, 4, 5])


@pytest.mark.parametrize(
    ("text", "millis"),
    [("1s", [1000]), ("2m 3h", [120_000, 10_800_000]), ("1d", [86_400_000]), (" 0s  5s ", [0, 5000])],
)
def test_delay_levels_are_parsed(text: str, millis: list[int]) -> None:
    assert parse_delay_levels(text).tolist() == millis


def test_the_default_has_18_levels() -> None:
    assert LEVELS.tolist() == [
        1000 * seconds
        for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
    ]


@pytest.mark.parametrize("text", ["", " ", "s", "5", "5x", "-5s", "1.5s", "1s,2s", "1ms", "²s", "9" * 20 + "d"])
def test_other_delay_levels_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="messageDelayLevel"):
        parse_delay_levels(text)


def test_pre_blank_units_are_not_live() -> None:
    units = np.concatenate((pre_blank(2), np.zeros(2, UNIT_DTYPE), np.array([(0, 91, 0), (5, 100, -1)], UNIT_DTYPE)))
    assert is_live(units).tolist() == [False, False, False, False, True, True]


def test_a_pre_blank_unit_has_the_broker_s_bytes() -> None:
    assert pre_blank(1).tobytes() == bytes(8) + PRE_BLANK_SIZE.to_bytes(4) + bytes(8)


@pytest.mark.parametrize("store", [store for store in usual_stores() if store.has("rebuilt")], ids=str)
def test_live_units_of_a_rebuilt_queue_are_those_that_the_broker_counts(store: RealStore, tmp_path: Path) -> None:
    folder = store.unpack(tmp_path, "rebuilt")
    for fact in store.facts("queue"):
        queue = folder / "consumequeue" / fact["topic"] / str(fact["queueId"])
        if queue.is_dir():
            units = np.frombuffer(b"".join(file.read_bytes() for file in sorted(queue.iterdir())), UNIT_DTYPE)
            assert int(is_live(units).sum()) == fact["max"] - fact["min"]


@pytest.mark.parametrize(("number", "size", "name"), [(0, 20, "0" * 20), (3, 6_000_000, "00000000000018000000")])
def test_a_queue_file_is_named_by_its_first_byte(number: int, size: int, name: str) -> None:
    assert queue_file_name(number, size) == name


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.binary(max_size=3), st.sampled_from(["same", "other offset", "other size"])), max_size=9))
def test_a_unit_leads_to_the_record_that_has_its_offset_and_its_size(rows: list[tuple[bytes, str]]) -> None:
    data, units = b"", np.zeros(len(rows), UNIT_DTYPE)
    for unit, (body, kind) in zip(units, rows, strict=True):
        record = Record(b"T", body=body, commit_log_offset=len(data))
        unit["commit_log_offset"] = len(data) + (kind == "other offset")
        unit["store_size"] = record.size - (kind == "other size")
        data += record.encode()
    assert lead_to(units, array(data), frames_of(data)).tolist() == [kind == "same" for _, kind in rows]


@settings(max_examples=examples(200))
@given(st.lists(st.lists(st.integers(-3, 9)).map(sorted), min_size=1, max_size=3), st.data())
def test_numbers_are_found_in_parts_as_by_bisect(parts: list[list[int]], data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.tuples(st.integers(0, len(parts) - 1), st.integers(-4, 10)), max_size=30))
    ends, values = np.cumsum([0, *map(len, parts)]), np.array([one for part in parts for one in part], np.int64)
    numbers, asked = np.array(wanted, np.int64).reshape(-1, 2).T
    found = np.empty(asked.size, np.int64)
    bisect_each(values, asked, ends[numbers], ends[numbers + 1], found)
    assert found.tolist() == [ends[part] + bisect_left(parts[part], one) for part, one in wanted]
