"""`spark-mq compare STORE REPLICA`: where the logs of two replicas part, and what only one of them has. No Spark."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_mq.cli.command import command
from spark_mq.cli.exit_status import DAMAGED, FOUND
from spark_mq.cli.output.terminal import print_answer
from spark_mq.format.amounts import counted, size_text

if TYPE_CHECKING:
    from spark_mq.repairer.comparison import Comparison, Part, Side

_SHOWN = 20
"""Parts, and topics, that are printed of each kind."""


@command(
    "compare",
    """
    STORE
    REPLICA  the store directory of another replica of the same broker
    --json
    """,
    example="/data/master /data/slave",
    description="Print where the commit logs of two replicas differ, which of them is damaged there, and what only one "
    "has.",
    epilog="""
    Replicas have the same bytes at the same commit log offsets. Each log is read once, and segments that differ are
    read again as records. Brokers can run on both. What both have alike is not checked: `spark-mq verify` does that.
    `spark-mq repair STORE --from REPLICA` takes what is damaged in STORE from REPLICA.
    """,
)
def compare(arguments: argparse.Namespace) -> int:
    """Compare two replicas, and print how they differ; returns the exit status."""
    from spark_mq.repairer.comparison import compare as compare_stores

    found = compare_stores(arguments.store, arguments.replica)
    print_answer(arguments.json, found.to_json, lambda: _lines(found))
    return FOUND if found.is_same else DAMAGED


def _lines(found: Comparison) -> Iterator[str]:
    from spark_mq.repairer.comparison import PartState

    yield f"comparison of {found.store.store} and {found.replica.store}"
    for name, side in (("STORE", found.store), ("REPLICA", found.replica)):
        yield f"  {name:<14}  commit log offsets {side.start} to {side.end}{_committed(side)}"
    yield f"  compared        {size_text(found.compared_bytes)}, in {found.seconds:.1f} seconds"
    if found.consistent_offset is not None:
        yield f"  epochs          a slave cuts its log at {found.consistent_offset} before it follows the other one"
    for state in PartState:
        yield from part_lines(str(state), found.of(state))
    yield from only_lines(found)
    yield ""
    if found.of(PartState.STORE_DAMAGED):
        store, replica = shlex.quote(found.store.store), shlex.quote(found.replica.store)
        yield f"next: `spark-mq repair {store} --from {replica}`"
    yield f"verdict: {found.verdict}"


def _committed(side: Side) -> str:
    return "" if side.committed is None else f"; it knows that its group committed what is before {side.committed}"


def part_lines(title: str, parts: list[Part]) -> Iterator[str]:
    """The lines about parts of two logs that have something in common; no line if there are none."""
    if parts:
        yield ""
        yield f"{title}: {counted(len(parts), 'part')}, {size_text(sum(part.size for part in parts))}"
        for part in parts[:_SHOWN]:
            yield f"  {part.name}"
        if len(parts) > _SHOWN:
            yield f"  more            {len(parts) - _SHOWN:,}; --json prints all of them"


def only_lines(found: Comparison) -> Iterator[str]:
    """The lines about what only one of two logs has."""
    for name, only in [("STORE", one) for one in found.store.only] + [("REPLICA", one) for one in found.replica.only]:
        yield ""
        size, messages = size_text(only.stop - only.start), counted(only.messages, "message")
        yield f"only in {name}: commit log offsets {only.start} to {only.stop}, {size}, {messages}"
        topics = sorted(only.topics.items(), key=lambda item: (-item[1], item[0]))
        yield from (f"  {topic:<14}  {count:,}" for topic, count in topics[:_SHOWN])
        if len(topics) > _SHOWN:
            yield f"  more            {len(topics) - _SHOWN:,} topics; --json prints all of them"
