"""The findings of a check, counted by file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from spark_mq.repairer.treatments import TREATMENTS, Treatment


@dataclass(frozen=True)
class DamagedFile:
    """One file of a store with findings that have the same treatment.

    Attributes:
        codes: The codes of its findings, in order, each with the number of findings.
        last_position: The last byte at which there is a finding; -1 if none has a position.
    """

    file: str
    codes: tuple[tuple[str, int], ...]
    last_position: int = -1

    def has(self, *codes: str) -> bool:
        """Whether the file has a finding with one of these codes."""
        return any(code in codes for code, _ in self.codes)

    def has_only(self, *codes: str) -> bool:
        """Whether the file has only findings with these codes."""
        return all(code in codes for code, _ in self.codes)


@dataclass(frozen=True)
class DamagedFiles:
    """The findings of a check by code and file; few, however many findings there are.

    Attributes:
        counts: The number of findings of each code and file. The file of a finding without one is empty text.
        last_positions: By the same, the last byte at which there is such a finding; -1 if none has a position.
    """

    counts: Mapping[tuple[str, str], int]
    last_positions: Mapping[tuple[str, str], int]

    @classmethod
    def of(cls, findings: Iterable[pa.RecordBatch]) -> Self:
        """The findings of a check (`spark_mq.verifier.finding.FINDING_SCHEMA`)."""
        counts: Counter[tuple[str, str]] = Counter()
        last: dict[tuple[str, str], int] = {}
        for batch in findings:
            table = pa.Table.from_batches([batch]).select(["code", "file", "position"])
            grouped = table.group_by(["code", "file"]).aggregate([([], "count_all"), ("position", "max")])
            for row in grouped.to_pylist():
                key = row["code"], row["file"] or ""
                counts[key] += row["count_all"]
                position = row["position_max"]
                last[key] = max(last.get(key, -1), -1 if position is None else position)
        return cls(counts, last)

    def has(self, code: str) -> bool:
        """Whether there is a finding with a code."""
        return any(code == found for found, _ in self.counts)

    def totals(self) -> dict[str, int]:
        """The number of findings of each code, in the order of their names."""
        totals: Counter[str] = Counter()
        for (code, _), count in sorted(self.counts.items()):
            totals[code] += count
        return dict(totals)

    def treated(self, treatment: Treatment) -> list[DamagedFile]:
        """The files with a finding that has this treatment, by name."""
        codes: dict[str, list[tuple[str, int]]] = {}
        last: dict[str, int] = {}
        for (code, file), count in sorted(self.counts.items()):
            if TREATMENTS[code] == treatment:
                codes.setdefault(file, []).append((code, count))
                last[file] = max(last.get(file, -1), self.last_positions[code, file])
        return [DamagedFile(file, tuple(found), last[file]) for file, found in sorted(codes.items())]
