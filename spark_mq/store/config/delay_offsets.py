"""The offsets up to which delayed messages were delivered: `config/delayOffset.json`.

`{"offsetTable": {1: 5, 2: 6}}`: for each delay level, the queue offset of the next message to deliver. The keys are
integers without quotes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_mq.store.config.config_file import as_integer

DELAY_OFFSETS = "delayOffset.json"


def parse_delay_offsets(content: Mapping[str, Any]) -> dict[int, int]:
    """The offset of each delay level, for `load_config`."""
    table = content.get("offsetTable") or {}
    return {as_integer(level, 32): as_integer(offset, 63) for level, offset in table.items()}
