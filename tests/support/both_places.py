"""What is the same of a local store and of its copy on S3 or HDFS: answers of commands, and rebuilt files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_mq.cli.main import main
from spark_mq.source.message_stream import MessagesStreamReader
from spark_mq.source.options import parse_stream_options
from spark_mq.tables.all_tables import TABLES
from tests.support.in_process import read_rows
from tests.support.rebuilt import rebuild_here
from tests.support.stores import RealStore, tree_of

Place = Callable[[RealStore], tuple[str, str]]
"""Gives the path of a store on the local disk, and that of its copy."""
Trees = Callable[[RealStore], dict[str, bytes]]
"""Gives the files of a store that were rebuilt on the local disk."""
COPIED_TABLES = [table for table in TABLES if table != "retention"]
"""All tables except the one whose rows depend on the times of files, which a copy changes."""
STREAM_COLUMNS = ["commit_log_offset", "topic", "body", "_corrupt_record"]


def rows_of(path: str, table: str, **options: str) -> list[dict[str, Any]]:
    """The rows, without the times of files: a copy has those of its upload."""
    has_moment = table in ("transactions", "delayed", "retries", "consumer_progress")
    moment = {"at": "2026-12-01T00:00:00Z"} if has_moment else {}
    rows = read_rows(path=path, table=table, **moment, **options)
    return [{name: value for name, value in row.items() if name != "modification_timestamp"} for row in rows]


def stream_of(store: str) -> MessagesStreamReader:
    """A stream of a store, with small batches."""
    return MessagesStreamReader(parse_stream_options({"path": store, "maxBytesPerTrigger": "100k"}), STREAM_COLUMNS)


def batches(stream: MessagesStreamReader) -> Iterator[list[dict[str, Any]]]:
    """The rows of each batch until nothing is new. Spark stores an offset as JSON."""
    start: Mapping[str, Any] = stream.initialOffset()
    while (end := stream.latestOffset(start, stream.getDefaultReadLimit())) != start:
        end = json.loads(json.dumps(end))
        parts = [part for partition in stream.partitions(start, end) for part in stream.read(partition)]
        yield pa.Table.from_batches(parts).to_pylist()
        start = end


def questions(fact: Mapping[str, Any], unique_key: str) -> list[list[str]]:
    """Commands and their arguments after the store: tables, and look-ups of a message that has a key.

    Args:
        fact: The fact of the message.
        unique_key: The unique key to look up.

    """
    return [
        ["topics"],
        ["queues"],
        ["lag"],
        ["query-by-id", fact["msgId"]],
        ["query-by-key", fact["topic"], fact["keys"].split()[0]],
        ["query-by-offset", fact["topic"], str(fact["queueId"]), str(fact["queueOffset"])],
        ["query-by-unique-key", fact["topic"], unique_key],
    ]


def answer(store: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """The exit status of a command on a store, and its output and errors without the path of the store."""
    status = main([words[0], store, *words[1:], "--json"])
    captured = capsys.readouterr()
    return status, captured.out.replace(store, "STORE"), captured.err.replace(store, "STORE")


def rebuilt_trees(place: Place, folders: pytest.TempPathFactory) -> Trees:
    """A function that gives the files of a rebuild on the local disk; each store is rebuilt once."""
    trees: dict[RealStore, dict[str, bytes]] = {}

    def rebuilt(store: RealStore) -> dict[str, bytes]:
        if store not in trees:
            output = Path(folders.mktemp("rebuilt"))
            rebuild_here(place(store)[0], output, broker_conf=str(store.broker_conf))
            trees[store] = tree_of(output)
        return trees[store]

    return rebuilt
