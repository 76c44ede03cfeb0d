from __future__ import annotations

import pyarrow as pa
import pytest

from spark_mq.archive.archive_tables import KEYS_SCHEMA, MESSAGES_SCHEMA
from spark_mq.errors import InvalidMessageError
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, MESSAGE_BY_KEY_SCHEMA
from spark_mq.restorer.source_columns import check_columns

STRINGS = pa.list_(pa.string())


@pytest.mark.parametrize(
    "schema", [MESSAGES_SCHEMA, MESSAGE_BY_KEY_SCHEMA, KEYS_SCHEMA, pa.schema(list(ALL_MESSAGE_FIELDS.values()))]
)
def test_columns_of_a_table_are_columns_of_messages(schema: pa.Schema) -> None:
    check_columns(schema, is_faithful=True)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "column 'topic' is missing"),
        ({"topik": pa.string()}, "column 'topik' is not a column of messages; similar: topic"),
        ({"Topic": pa.string()}, "column 'Topic' is not a column of messages; similar: topic"),
        ({"x\n": pa.string()}, r"column 'x\\n' is not a column of messages"),
        ({"topic": pa.binary()}, "column 'topic' has type binary: it must be STRING"),
        ({"body": pa.int32()}, "column 'body' has type int32: it must be BINARY or STRING"),
        ({"queue_id": pa.string()}, "column 'queue_id' has type string: it must be INT or BIGINT"),
        ({"queue_id": pa.uint64()}, "column 'queue_id' has type uint64"),
        ({"queue_offset": pa.float64()}, "column 'queue_offset' has type double"),
        ({"keys": pa.list_(pa.int32())}, "it must be ARRAY<STRING> or STRING"),
        ({"properties": pa.string()}, "it must be MAP<STRING, STRING>"),
        ({"properties": pa.map_(pa.string(), STRINGS)}, "it must be MAP<STRING, STRING>"),
        ({"store_timestamp": pa.int64()}, "it must be TIMESTAMP"),
        ({"store_timestamp": pa.timestamp("us")}, "a time zone is needed"),
    ],
)
def test_other_columns_are_errors(columns: dict[str, pa.DataType], said: str) -> None:
    with pytest.raises(InvalidMessageError, match=said):
        check_columns(pa.schema(list(columns.items())))


def test_a_column_that_is_there_twice_is_an_error() -> None:
    with pytest.raises(InvalidMessageError, match="column 'topic' is there twice"):
        check_columns(pa.schema([("topic", pa.string()), ("topic", pa.string())]))


def test_messages_that_keep_their_offsets_need_them() -> None:
    topic = pa.field("topic", pa.string())
    check_columns(pa.schema([topic]))
    with pytest.raises(InvalidMessageError, match=r"'commit_log_offset' is missing.*\(renumber\)"):
        check_columns(pa.schema([topic]), is_faithful=True)
    with pytest.raises(InvalidMessageError, match="'queue_offset' is missing"):
        check_columns(pa.schema([topic, ("commit_log_offset", pa.int64())]), is_faithful=True)
