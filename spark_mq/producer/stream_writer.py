"""The writer of a stream to topics of a live cluster: each batch as `TopicWriter` sends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from spark_mq.producer.writer import SentRows, TopicWriter


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of each batch. At least once: a batch that failed is sent again, from its first row."""

    def __init__(self, writer: TopicWriter) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        """Send the rows of one partition of a batch."""
        return self._writer.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: the messages are stored."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: a message that is stored stays."""
