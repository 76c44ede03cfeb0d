"""The result of a check: counts, the first findings of each code, a verdict, and a file of all findings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from spark_mq.errors import StorageError
from spark_mq.format.amounts import counted
from spark_mq.format.timestamp import iso_text
from spark_mq.io.location import Location
from spark_mq.verifier.codes import CODES, Code, Severity
from spark_mq.verifier.finding import FINDING_SCHEMA, Finding

_GRAVEST_FIRST = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


def write_findings(path: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Write findings to a file: Parquet if its name ends with `.parquet`, else JSON lines."""
    location = Location.resolve(path)
    try:
        with location.open_output() as file:
            if location.name.endswith(".parquet"):
                with pq.ParquetWriter(file, FINDING_SCHEMA) as writer:
                    for batch in batches:
                        writer.write_batch(batch)
            else:
                for batch in batches:
                    file.write("".join(f"{json.dumps(row)}\n" for row in batch.to_pylist()).encode())
    except OSError as error:
        raise StorageError(f"--report {location}: cannot be written: {error}") from error


@dataclass(frozen=True)
class VerifyReport:
    """What a check found, without the findings themselves. A quick check does not read the log: its counts are None.

    `engine` is where the tasks ran: a key of `ENGINES`. With a journal, `sound_bytes` of the log were sound at the time
    `checked_timestamp`, and were not read again; all of the store was read at `whole_timestamp` (milliseconds). A
    reason says why more was read than what is new. Of a sample, `sampled_bytes` of the log were read.
    """

    store: str
    is_quick: bool
    counts: dict[str, int]
    first: dict[str, list[Finding]]
    messages: int | None
    log_bytes: int
    queues: int
    units: int | None
    index_files: int
    index_entries: int | None
    seconds: float
    stages: dict[str, float] = field(default_factory=dict)
    engine: str = "local"
    sound_bytes: int = 0
    sampled_bytes: int | None = None
    checked_timestamp: int | None = None
    whole_timestamp: int | None = None
    whole_reason: str = ""

    def count(self, severity: Severity) -> int:
        """The number of findings of a severity."""
        return sum(count for code, count in self.counts.items() if CODES[code].severity == severity)

    @property
    def is_sound(self) -> bool:
        """Whether there is neither a warning nor an error."""
        return not self.count(Severity.ERROR) and not self.count(Severity.WARNING)

    @property
    def verdict(self) -> str:
        """The verdict in a few words: `sound`, or the numbers of errors, warnings and notes."""
        counts = [(self.count(severity), str(severity)) for severity in _GRAVEST_FIRST]
        text = ", ".join(counted(count, name) for count, name in counts if count)
        if not self.is_sound:
            return f"not sound: {'' if self.sampled_bytes is None else 'at least '}{text}"
        what = "sound, as far as a quick check can see" if self.is_quick else "sound"
        if self.sampled_bytes is not None:
            share = 100 * self.sampled_bytes / self.log_bytes if self.log_bytes else 100
            what += f", and the records of {share:.1f} % of the log"
        if self.sound_bytes and self.checked_timestamp is not None:
            since = iso_text(self.checked_timestamp)
            what = f"sound: what is new or has changed since {since}; the rest was sound then"
        return f"{what} ({text})" if text else what

    def codes(self) -> Iterator[tuple[str, Code]]:
        """The codes that were found: errors first, and the log before what depends on it."""
        for severity in _GRAVEST_FIRST:
            for name, code in CODES.items():
                if code.severity == severity and name in self.counts:
                    yield name, code

    def to_json(self) -> str:
        """One JSON object: the fields of this class, `verdict` and `is_sound`."""
        return json.dumps({**asdict(self), "verdict": self.verdict, "is_sound": self.is_sound})
