"""What every job of this package needs, whatever it does.

`tasks` runs its tasks on Spark, or in this process; each gets its own items, and looks whether it sees the driver's
files. `progress` shows how far a job is without Spark's help, `output_committer` keeps an output complete or unchanged.
`task_errors` turns errors of Spark and of the operating system into errors of this package. `Report` is the base of
reports.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import ClassVar


class Report:
    """The base of reports, which are dataclasses."""

    shown: ClassVar[tuple[str, ...]] = ()
    """Properties that the JSON object has besides the fields."""

    def to_json(self) -> str:
        """One JSON object: the fields of this class, and the properties `shown`."""
        fields = asdict(self)  # type: ignore[call-overload]
        return json.dumps({**fields, **{name: getattr(self, name) for name in self.shown}})
