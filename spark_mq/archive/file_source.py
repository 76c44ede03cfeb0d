"""A stream over a store whose tasks write the messages, and their keys, as files; its rows name the files.

The offsets are those of the stream `rocketmq`, so both continue from the same checkpoint. A file is not in a table
before a commit names it (`file_commit`). What a killed task leaves is no row of any table; VACUUM removes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_mq.archive.archive_tables import StoreIdentity
from spark_mq.archive.table_file import TableFile, new_file_name
from spark_mq.archive.table_rows import READ_COLUMNS, key_rows, message_rows
from spark_mq.archive.tables import KEYS, MESSAGES
from spark_mq.errors import SparkMqError
from spark_mq.source.message_stream import MessagesStreamReader
from spark_mq.source.options import parse_stream_options

FORMAT = "rocketmq_archive_files"
PLACE = "archivePlace"
"""The option with the folders of both tables, and the names of the store in each row: a JSON array."""


class ArchiveFilesSource(DataSource):
    """The stream; its one column has the name of a file, which is the same in both folders."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> str:
        """The columns."""
        return "name STRING"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader."""
        options = {name: value for name, value in self.options.items() if name.lower() != PLACE.lower()}
        return ArchiveFilesReader(*json.loads(self.options[PLACE]), options=options)


@dataclass
class FailedPartition(InputPartition):
    """A batch that cannot be planned. It may be archived already, so the error is raised when a task reads it."""

    error: SparkMqError


class ArchiveFilesReader(MessagesStreamReader):
    """The stream reader of `rocketmq`, whose tasks write files."""

    def __init__(self, messages: str, keys: str, *names: str, options: Mapping[str, str]) -> None:
        """Prepare the reader of `PLACE`; `options` are those of the stream `rocketmq`."""
        super().__init__(parse_stream_options(options), list(READ_COLUMNS))
        self._messages, self._keys, self._identity = messages, keys, StoreIdentity(*names)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """The partitions of the batch, or one that has the error."""
        try:
            return super().partitions(start, end)
        except SparkMqError as error:
            return [FailedPartition(error)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the files of one partition; returns their name, or nothing if there are no messages."""
        if isinstance(partition, FailedPartition):
            raise partition.error
        name = new_file_name()
        messages, keys = TableFile(f"{self._messages}/{name}", MESSAGES), TableFile(f"{self._keys}/{name}", KEYS)
        try:
            for batch in super().read(partition):
                messages.add(message_rows(batch, self._identity))
                keys.add(key_rows(batch, self._identity))
            keys.close()
            messages.close(note=str(keys.rows))
        except BaseException:
            messages.discard()
            keys.discard()
            raise
        if messages.rows:
            yield pa.RecordBatch.from_pydict({"name": [name]})
