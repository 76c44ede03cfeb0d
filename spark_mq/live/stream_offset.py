"""The offset of a stream of a live cluster, as Spark stores it in a checkpoint: JSON with a fixed order of keys.

`{"version": 1, "queues": {BROKER: {TOPIC: {QUEUE_ID: OFFSET}}}, "began": {BROKER: {TOPIC: {QUEUE_ID: OFFSET}}}}`: every
message before the offset of its queue was read. `began` has the queues that the batch that ends here does not begin
where the batch before ended: queues that are new, or that no longer have that offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from spark_mq.errors import OptionError

_VERSION = 1
QueueKey = tuple[str, str, int]
"""Broker, topic and queue id."""


@dataclass(frozen=True)
class LiveOffset:
    """The end of a batch."""

    queues: Mapping[QueueKey, int]
    began: Mapping[QueueKey, int] = field(default_factory=dict)

    def start_of(self, queue: QueueKey, before: LiveOffset) -> int:
        """The first queue offset of the batch that ends here, in a queue of it; `before` ends the batch before."""
        return self.began.get(queue, before.queues.get(queue, 0))

    def to_json(self) -> dict[str, Any]:
        """The offset for Spark."""
        return {"version": _VERSION, "queues": _nested(self.queues), "began": _nested(self.began)}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Self:
        """The offset of a checkpoint. Raises `OptionError` for values that this version does not write."""
        try:
            if values["version"] != _VERSION:
                raise ValueError(f"version {values['version']}, not {_VERSION}")
            return cls(_flat(values["queues"]), _flat(values["began"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OptionError(
                f"the checkpoint's offset {dict(values)} was not written by a stream of a live cluster of this "
                f"spark-mq ({error!r}): use its own checkpoint"
            ) from error


def _nested(offsets: Mapping[QueueKey, int]) -> dict[str, dict[str, dict[str, int]]]:
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for (broker, topic, queue_id), offset in sorted(offsets.items()):
        nested.setdefault(broker, {}).setdefault(topic, {})[str(queue_id)] = offset
    return nested


def _flat(nested: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[QueueKey, int]:
    flat = {
        (broker, topic, int(queue_id)): offset
        for broker, topics in nested.items()
        for topic, queues in topics.items()
        for queue_id, offset in queues.items()
    }
    if not all(type(offset) is int and offset >= 0 for offset in flat.values()):
        raise ValueError("an offset is not a number of at least 0")
    return flat
