"""The entries of a DLedger log: their indexes and terms, DLedger's index of them, and the end that the node wrote down.

What is between two records and is not the head of an entry is found with the records (`LOG_CORRUPT`). No broker writes
the CRCs of a head, and none reads them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Flags
from spark_mq.format.dledger import HEAD_SIZE
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import DLEDGER_INDEX
from spark_mq.store.log.commit_log import Segment
from spark_mq.verifier.finding import findings


def entry_findings(node: Location, segment: Segment) -> Iterator[pa.RecordBatch]:
    """What is wrong with the entries of a segment, and with the units of DLedger's index for them."""
    from spark_mq.store.log.dledger_log import index_units, read_entries

    first, last, wrong = 0, None, 0
    for entries in read_entries(segment, segment.data_end):
        if last is None:
            first = int(entries.index[0])
            unit = index_units(node, first - 1, first)
            last = first - 1, int(unit["term"][0])
        indexes, terms = np.append(last[0], entries.index), np.append(last[1], entries.term)
        broken = np.flatnonzero((np.diff(indexes) != 1) | (np.diff(terms) < 0))
        for at in broken.tolist():
            yield findings(
                "DLEDGER_ENTRY",
                segment.path,
                f"index {int(indexes[at]) + 1}, and term {terms[at]} or later",
                f"index {entries.index[at]}, term {entries.term[at]}",
                position=int(entries.offset[at]) - segment.base,
                commit_log_offset=int(entries.offset[at]),
            )
        last = int(entries.index[-1]), int(entries.term[-1])
        if not broken.size:
            units = index_units(node, int(entries.index[0]), last[0] + 1)
            differs: Flags = np.zeros(units.size, np.bool_)
            for name in ("offset", "size", "index", "term"):
                differs |= units[name] != getattr(entries, name)
            differs |= (units["magic"] != entries.magic) & (entries.size > HEAD_SIZE)
            wrong += int(differs.sum())
    if wrong:
        expected = f"the units of entries from index {first} on"
        yield findings("DLEDGER_INDEX", f"{node.name}/{DLEDGER_INDEX}", expected, f"{wrong} units with other values")


def end_findings(node: Location, segments: tuple[Segment, ...]) -> Iterator[pa.RecordBatch]:
    """At most one finding: the entries at the end that the log has no more."""
    from spark_mq.store.log.dledger_log import lost_entries

    lost = lost_entries(node, segments)
    if lost is not None:
        last = segments[-1]
        yield findings(
            "DLEDGER_LOST",
            last.path,
            f"entries up to index {lost[1]}",
            f"a log that ends before index {lost[0]}",
            position=last.data_end,
            commit_log_offset=last.base + last.data_end,
        )
