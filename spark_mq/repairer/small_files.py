"""New content for `checkpoint` and the files of `config/`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.indexer.staging.stage import StagedLog
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.config.config_file import parse_fastjson
from spark_mq.store.config.consumer_offsets import CONSUMER_OFFSETS
from spark_mq.store.config.store_paths import CONFIG

Queue = tuple[str, int]

_INTEGER_KEY = re.compile(r'([{,])"(-?[0-9]+)":')


def clamped_checkpoint(checkpoint: Checkpoint, log: StagedLog | None, index_end: int) -> Checkpoint:
    """A checkpoint without times and offsets that are later than the store; what is not too late stays.

    A recovery starts at a segment that is older than these times. So a time that cannot be right becomes that of the
    last message, or of the last index file.

    Args:
        checkpoint: The checkpoint that is there.
        log: The log; None if it has no segment.
        index_end: The end timestamp of the last index file, in milliseconds.

    """
    newest, last, end = (
        (0, 0, 0) if log is None else (log.newest_store_timestamp, max(log.last_store_timestamp, 0), log.end)
    )
    last_unit_offset = 0 if log is None else log.last_unit_offset
    return replace(
        checkpoint,
        physic_msg_timestamp=_clamped(checkpoint.physic_msg_timestamp, newest, last),
        logics_msg_timestamp=_clamped(checkpoint.logics_msg_timestamp, newest, last),
        index_msg_timestamp=_clamped(checkpoint.index_msg_timestamp, newest, index_end),
        confirm_phy_offset=_clamped(checkpoint.confirm_phy_offset, end, end),
        logics_physical_offset=_clamped(checkpoint.logics_physical_offset, last_unit_offset, last_unit_offset),
    )


def _clamped(value: int, limit: int, otherwise: int) -> int:
    """The value if it is between 0 and the limit, else `otherwise`."""
    return value if 0 <= value <= limit else otherwise


def corrected_offsets(store: Location, file: str, ends: Mapping[Queue, int]) -> bytes:
    """`consumerOffset.json` or `delayOffset.json`, with each offset after the end of its queue set to that end.

    Args:
        store: The store.
        file: The file, as a path in the store.
        ends: The next queue offset of the queues whose offsets are corrected.

    Raises:
        ValueError: The file is not JSON.

    """
    content: Any = parse_fastjson((store / file).read_bytes().decode("utf-8"))
    table = content["offsetTable"]
    if file == f"{CONFIG}/{CONSUMER_OFFSETS}":
        for name, offsets in table.items():
            for queue_id, offset in offsets.items():
                end = ends.get((name.partition("@")[0], int(queue_id)))
                offsets[queue_id] = int(offset) if end is None else min(int(offset), end)
    else:
        for level, offset in table.items():
            end = ends.get((SCHEDULE_TOPIC, int(level) - 1))
            table[level] = int(offset) if end is None else min(int(offset), end)
    members = [
        f"{_json(name)}:{_fastjson(value) if name == 'offsetTable' else _json(value)}"
        for name, value in content.items()
    ]
    return ("{" + ",".join(members) + "}").encode("utf-8")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _fastjson(value: object) -> str:
    """A JSON text whose integer keys are not quoted, as brokers write it."""
    return _INTEGER_KEY.sub(r"\1\2:", _json(value))
