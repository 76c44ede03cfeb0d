"""The staged entries that an index lacks: all of them, or those behind its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_mq.indexer.index.staged_entries import StagedEntries
from spark_mq.indexer.split_rows import SplitRow
from spark_mq.io.location import Location
from spark_mq.store.index.end import IndexEnd
from spark_mq.store.log.corrupt_range import CorruptRange


@dataclass(frozen=True)
class IndexRun:
    """`count` entries of a blob, from its entry `start` on, and the messages that follow the last of them."""

    blob: StagedEntries
    start: int
    count: int
    trailing_messages: int


def index_runs(rows: Iterable[SplitRow], blobs: Location) -> list[IndexRun]:
    """The entries of all splits, whose blobs lie in the folder `blobs`."""
    runs = []
    for row in rows:
        blob = StagedEntries(blobs / (row.entries_file or ""), row.index_entries)
        runs.append(IndexRun(blob, 0, blob.count, row.trailing_messages))
    return runs


def behind(
    rows: Sequence[SplitRow], runs: Sequence[IndexRun], end: IndexEnd
) -> tuple[list[IndexRun], list[CorruptRange]]:
    """What of the runs of these splits comes behind the end of an index; and where index and log contradict each other.

    A message before the end is in the index; of the one at the end, which a kill can have cut, the keys that are
    missing come. Where the log begins behind the end, all comes.
    """
    offset = end.commit_log_offset
    if offset < rows[0].segment:
        return list(runs), []
    number = next((n for n, row in enumerate(rows) if offset < row.segment + row.split_stop), len(rows))
    if number == len(rows):
        return [], [_contradiction(end, "the log ends before it")]
    run = runs[number]
    first, stop = run.blob.count_before(offset), run.blob.count_before(offset + 1)
    keys = [key_hash for part in run.blob.read(first, stop - first) for key_hash in part.key_hashes.tolist()]
    known = end.keys_in(keys)
    start = first + known if known else stop
    rest = [IndexRun(run.blob, start, run.count - start, run.trailing_messages), *runs[number + 1 :]]
    is_other = end.key_hashes and not known
    return rest, [_contradiction(end, "the log has no message there with such keys")] if is_other else []


def _contradiction(end: IndexEnd, what: str) -> CorruptRange:
    reason = (
        f"the index ends with a message at commit log offset {end.commit_log_offset}, but {what}; --replace makes the "
        "index new from the log"
    )
    return CorruptRange(str(end.file.location), end.commit_log_offset, 0, "CONTRADICTED_INDEX", reason)
