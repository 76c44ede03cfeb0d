"""What is the same of a local store and of its copy on S3 or HDFS: answers of commands, and rebuilt files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_mq.cli.main import main
from tests.support.rebuilt import rebuild_here
from tests.support.stores import RealStore, tree_of

Place = Callable[[RealStore], tuple[str, str]]
"""Gives the path of a store on the local disk, and that of its copy."""


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


def rebuilt_trees(place: Place, folders: pytest.TempPathFactory) -> Callable[[RealStore], dict[str, bytes]]:
    """A function that gives the files of a rebuild on the local disk; each store is rebuilt once."""
    trees: dict[RealStore, dict[str, bytes]] = {}

    def rebuilt(store: RealStore) -> dict[str, bytes]:
        if store not in trees:
            output = Path(folders.mktemp("rebuilt"))
            rebuild_here(place(store)[0], output, broker_conf=str(store.broker_conf))
            trees[store] = tree_of(output)
        return trees[store]

    return rebuilt
