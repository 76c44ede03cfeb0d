"""The base of what jobs report."""

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
