"""Writes `tests/sharing/allocations.jsonl`: cases with the answers of the Java strategies of both releases.

Run it as `python -m tests.broker.make_allocations`.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.broker import harness
from tests.support.allocation_cases import random_cases

FILE = Path(__file__).resolve().parent.parent / "sharing" / "allocations.jsonl"


def main() -> None:
    """Write the file; the releases must agree."""
    cases = random_cases(seed=2, count=150)
    newer, older = (harness.answers("allocate", map(json.dumps, cases), version) for version in harness.VERSIONS)
    if newer != older:
        raise SystemExit("the releases give different answers")
    lines = (json.dumps({"case": case, "said": said}) for case, said in zip(cases, newer, strict=True))
    FILE.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
