"""The result of a repair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from spark_mq.format.amounts import counted
from spark_mq.repairer.plan import Action, Left
from spark_mq.store.config.broker_conf import FileSetting
from spark_mq.verifier.result import VerifyReport


@dataclass(frozen=True)
class RepairReport:
    """What a repair did, or would do.

    Attributes:
        output: The folder that got the new files; None for the store itself.
        is_applied: Whether files were written; else this is a plan.
        actions: What was done, or would be done, by file.
        assumed: Settings of the new files that nothing in the store tells.
        backup: The folder with what was replaced; None if nothing was.
        room_needed: Bytes of the new files, and of what the backup copies; old files move there.
        room_free: Bytes that are free where the new files are made; None if that is not on a local filesystem.
        after: The check of the repaired store: what was sound and is kept was read before; None if nothing was changed
            in place.
        seconds: The duration of the repair, its check included.
        stages: The duration of each stage, in seconds.
    """

    store: str
    output: str | None
    is_applied: bool
    before: VerifyReport
    actions: tuple[Action, ...]
    left: tuple[Left, ...]
    assumed: tuple[FileSetting, ...] = ()
    room_needed: int = 0
    room_free: int | None = None
    backup: str | None = None
    after: VerifyReport | None = None
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is wrong, or all of it is, or would be, repaired."""
        if self.left:
            return False
        return bool(self.actions) or self.before.is_sound if self.after is None else self.after.is_sound

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        files = counted(len(self.actions), "file")
        kinds = counted(len(self.left), "kind of findings", "kinds of findings")
        rest = f"; {kinds} cannot be repaired" if self.left else ""
        if not rest and not self.is_complete:
            rest = f"; the store is {(self.after or self.before).verdict}"
        given = ", if the broker has the assumed settings" if self.assumed else ""
        if not self.actions:
            return f"nothing to repair{rest or ': the store is sound'}"
        if not self.is_applied:
            return f"a plan for {files}; nothing was changed{rest}{given}"
        return f"{files} repaired{rest}{given}"

    def to_json(self) -> str:
        """One JSON object: the fields of this class, `verdict` and `is_complete`."""
        more = {"actions": list(self._rows()), "verdict": self.verdict, "is_complete": self.is_complete}
        return json.dumps({**asdict(self), **more})

    def _rows(self) -> Iterator[dict[str, Any]]:
        for action in self.actions:
            change = action.change
            row: dict[str, Any] = {"kind": change.kind, "file": change.file, "treatment": action.treatment.name}
            if change.stop:
                row |= {"start": change.start, "stop": change.stop}
            yield {**row, "codes": dict(action.codes), "reason": str(action.treatment)}
