"""The batch reader of table `messages_by_key`: each message once for each of its distinct keys."""

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
    """Reads the columns `names` of keys and their messages."""

    def batch(self, messages: MessageColumns) -> pa.RecordBatch:
        """A row for each wanted key of the messages."""
        from spark_mq.format.kernels.keys import message_keys

        keys = message_keys(messages, self._options.predicate.keys)
        of_message = [name for name in self._names if name not in KEY_FIELDS]
        repeated = messages.record_batch(of_message).take(pa.array(keys.message))
        columns = {KEY: keys.key, KEY_TYPE: keys.key_type} | dict(zip(of_message, repeated.columns, strict=True))
        return pa.RecordBatch.from_arrays([columns[name] for name in self._names], schema=pa.schema(self.fields()))

    def rows(self, record: Record, row: Row, looked_up: str | None) -> list[Row]:
        """A row for each wanted key of the message, or for the one by which it was found."""
        wanted = self._options.predicate.keys
        found = record_keys(record)
        keys = [key for key in found if (wanted is None or key in wanted) and looked_up in (None, key)]
        if wanted is None and looked_up is not None:  # found by its unique key, which is one of its keys
            keys = list(found) if super().rows(record, row, looked_up) else []
        return [row | {KEY: key, KEY_TYPE: found[key].value} for key in keys]

    def fields(self) -> list[pa.Field]:
        """The columns that are read."""
        return [(KEY_FIELDS | ALL_MESSAGE_FIELDS)[name] for name in self._names]

    def shows_damage(self) -> bool:
        """What is damaged has no key."""
        return False
