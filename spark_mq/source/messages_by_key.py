"""The batch reader of table `messages_by_key`: a row for each distinct key of each message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from spark_mq.format.message_keys import record_keys
from spark_mq.format.message_row import Row
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, KEY, KEY_FIELDS, KEY_TYPE
from spark_mq.format.record import Record
from spark_mq.source.messages import MessagesReader

if TYPE_CHECKING:
    from spark_mq.format.kernels.columns import MessageColumns


class MessagesByKeyReader(MessagesReader):
    """The reader of keys and their messages; `columns` are the columns that the query reads."""

    def batch(self, messages: MessageColumns) -> pa.RecordBatch:
        """A row for each requested key of the messages."""
        from spark_mq.format.kernels.keys import message_keys

        keys = message_keys(messages, self._options.predicate.keys)
        message_columns = [name for name in self._columns if name not in KEY_FIELDS]
        repeated = messages.record_batch(message_columns).take(pa.array(keys.message))
        columns = {KEY: keys.key, KEY_TYPE: keys.key_type} | dict(zip(message_columns, repeated.columns, strict=True))
        return pa.RecordBatch.from_arrays([columns[name] for name in self._columns], schema=pa.schema(self.fields()))

    def rows(self, record: Record, row: Row, looked_up: str | None) -> list[Row]:
        """A row for each requested key of the message, or for the key by which the message was found."""
        requested = self._options.predicate.keys
        key_types = record_keys(record)
        keys = [key for key in key_types if (requested is None or key in requested) and looked_up in (None, key)]
        if requested is None and looked_up is not None:  # found by its unique key, which is one of its keys
            keys = list(key_types) if super().rows(record, row, looked_up) else []
        return [row | {KEY: key, KEY_TYPE: key_types[key].value} for key in keys]

    def fields(self) -> list[pa.Field]:
        """The columns that the query reads."""
        return [(KEY_FIELDS | ALL_MESSAGE_FIELDS)[name] for name in self._columns]

    def shows_damage(self) -> bool:
        """False: damage has no key, and so no row."""
        return False
