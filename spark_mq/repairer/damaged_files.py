"""The findings of a check, counted by file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from spark_mq.repairer.treatments import TREATMENTS, Treatment


@dataclass(frozen=True)
class DamagedFile:
    """One file of a store with findings that have the same treatment.

    Attributes:
        file: The file, as a path in the store.
        codes: The codes of its findings, in order, each with the number of findings.

    """

    file: str
    codes: tuple[tuple[str, int], ...]

    def has(self, *codes: str) -> bool:
        """Whether the file has a finding with one of these codes."""
        return any(code in codes for code, _ in self.codes)


@dataclass(frozen=True)
class DamagedFiles:
    """The findings of a check by code and file; few, however many findings there are.

    Attributes:
        counts: The number of findings of each code and file. The file of a finding without one is empty text.

    """

    counts: Counter[tuple[str, str]]

    @classmethod
    def of(cls, findings: Iterable[pa.RecordBatch]) -> Self:
        """The findings of a check (`spark_mq.verifier.finding.FINDING_SCHEMA`)."""
        counts: Counter[tuple[str, str]] = Counter()
        for batch in findings:
            table = pa.table([batch["code"], batch["file"]], names=["code", "file"])
            for row in table.group_by(["code", "file"]).aggregate([([], "count_all")]).to_pylist():
                counts[row["code"], row["file"] or ""] += row["count_all"]
        return cls(counts)

    def has(self, code: str) -> bool:
        """Whether there is a finding with a code."""
        return any(code == found for found, _ in self.counts)

    def treated(self, treatment: Treatment) -> list[DamagedFile]:
        """The files with a finding that has this treatment, by name."""
        found: dict[str, list[tuple[str, int]]] = {}
        for (code, file), count in sorted(self.counts.items()):
            if TREATMENTS[code] == treatment:
                found.setdefault(file, []).append((code, count))
        return [DamagedFile(file, tuple(codes)) for file, codes in sorted(found.items())]
