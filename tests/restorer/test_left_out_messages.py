from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from spark_mq.format.kernels.encode import fill_gaps
from spark_mq.format.system_topic import LEFT_OUT_TOPIC
from spark_mq.restorer.encode_messages import encode_messages
from spark_mq.restorer.source_columns import EncodingRules
from spark_mq.testing import write_store
from tests.support.in_process import message_batches
from tests.support.message_rows import EXACT_COLUMNS, encoded_records
from tests.support.stores import WORKLOAD, Unpack


def test_a_log_of_which_every_second_message_is_left_out_has_the_others_and_no_damage(
    unpacked: Unpack, tmp_path: Path
) -> None:
    """The records are written from rows; what is between them is filled, and blanks are those of the store."""
    folder = unpacked(WORKLOAD)
    batches = list(message_batches(EXACT_COLUMNS, path=str(folder)))
    rows = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    offsets, sizes = (rows.column(name).to_numpy() for name in ("commit_log_offset", "store_size"))
    encoded = encode_messages(rows, EncodingRules(is_faithful=True, now=1))
    records = encoded_records(encoded)
    segments = {}
    is_kept = np.zeros(rows.num_rows, np.bool_)
    for file in sorted((folder / "commitlog").iterdir()):
        base, data = int(file.name), file.read_bytes()
        here = np.flatnonzero((offsets >= base) & (offsets < base + len(data)))
        if not here.size:
            continue
        end = int(offsets[here[-1]] + sizes[here[-1]])
        buffer = np.frombuffer(bytearray(b"\xaa" * (end - base) + data[end - base :]), np.uint8)
        is_kept[here[::2]] = True
        for row in here[::2].tolist():
            at = int(offsets[row]) - base
            buffer[at : at + sizes[row]] = np.frombuffer(records[row], np.uint8)
        gone = here[1::2]
        fill_gaps(buffer, base, offsets[gone], offsets[gone] + sizes[gone], encoded.rows.store_timestamp[gone])
        segments[base] = buffer.tobytes()
    store = write_store(tmp_path / "store", segments)
    read = pa.Table.from_batches(message_batches(EXACT_COLUMNS, path=store.path)).combine_chunks().to_batches()[0]
    assert read.column("commit_log_offset").equals(rows.column("commit_log_offset"))
    assert read.column("_corrupt_record").null_count == read.num_rows
    assert read.filter(pa.array(is_kept)).equals(rows.filter(pa.array(is_kept)))
    left_out = read.filter(pa.array(~is_kept))
    assert left_out.num_rows > 500
    assert all(LEFT_OUT_TOPIC.startswith(topic) for topic in left_out.column("topic").to_pylist())
    assert set(left_out.column("transaction_type").to_pylist()) == {"ROLLBACK"}
