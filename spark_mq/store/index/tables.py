"""The tables of a store's index files: one row for each file's header, one for each entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from spark_mq.format.arrow_array import table_of
from spark_mq.format.index_file import ENTRY_DTYPE, ENTRY_SIZE, IndexLayout
from spark_mq.format.timestamp import micros
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.index.folder import IndexFileInfo, index_files
from spark_mq.tables.store_files import INDEX_ENTRIES, INDEX_FILES

_BATCH_ENTRIES = 64 << 10


def index_file_rows(store: Location, layout: IndexLayout) -> pa.Table:
    """The headers of the index files, oldest first. Raises `CorruptIndexError` for a file that is not an index file."""
    rows = []
    for file in index_files(store):
        header = file.header(layout)
        rows.append(
            {
                "file": file.name,
                "file_size": file.size,
                "begin_timestamp": micros(header.begin_timestamp),
                "end_timestamp": micros(header.end_timestamp),
                "begin_commit_log_offset": header.begin_commit_log_offset,
                "end_commit_log_offset": header.end_commit_log_offset,
                "hash_slot_count": header.hash_slot_count,
                "index_count": header.index_count,
            }
        )
    return table_of(rows, INDEX_FILES.schema)


def entry_batches(file: IndexFileInfo, layout: IndexLayout, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a file's entries, from entry 1 on, in batches of 65,536.

    Args:
        layout: The file's numbers of slots and entries.
        columns: Names of columns of table `index_entries`.
    """
    layout.check_file_size(file.size, str(file.location))
    stop = file.header(layout).next_entry
    with FileReader(file.location) as reader:
        for first in range(1, stop, _BATCH_ENTRIES):
            count = min(_BATCH_ENTRIES, stop - first)
            data = reader.read(layout.entries_at + ENTRY_SIZE * first, ENTRY_SIZE * count)
            entries = np.frombuffer(data, ENTRY_DTYPE)
            arrays = [
                pa.repeat(pa.scalar(file.name, pa.string()), entries.size),
                pa.array(np.arange(first, first + entries.size, dtype=np.int32)),
                pa.array(entries["key_hash"].astype(np.int32)),
                pa.array(entries["commit_log_offset"].astype(np.int64)),
                pa.array(entries["time_difference"].astype(np.int32)),
                pa.array(entries["previous_entry"].astype(np.int32)),
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=INDEX_ENTRIES.schema).select(list(columns))
