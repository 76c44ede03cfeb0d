"""The state of a store for a program: the fields of one JSON object."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from spark_mq.cli.output.json_lines import with_times
from spark_mq.cli.state.verdict import remedies, verdict
from spark_mq.store.boot import Boot
from spark_mq.store.store_state import StoreState


def state_fields(state: StoreState) -> dict[str, Any]:
    """The fields; names ending in `timestamp` are times in ISO 8601, and NULL if they were never set."""
    lacking, index = state.lacking, state.index
    fields = {
        "store": state.store,
        "verdict": " ".join(verdict(state)),
        "what_to_do": remedies(state),
        "last_stop": asdict(state.last_stop),
        "checkpoint": asdict(state.checkpoint) | {"problem": state.checkpoint_problem},
        "log": asdict(state.log),
        "queues": {
            "count": state.queue_count,
            "lacking_messages": None if lacking is None else len(lacking.messages),
            "is_complete": None if lacking is None else lacking.is_complete,
            "dispatched_to": None if lacking is None else lacking.dispatched_to,
        },
        "gone_messages": state.gone.count,
        "index": None
        if index is None
        else {
            "files": [file.name for file in index.files],
            "covered_to": index.covered_to,
            "covered_timestamp": index.covered_timestamp,
            "lacking_messages": len(index.lacking),
            "is_complete": index.is_complete,
            "problems": list(index.problems),
        },
        "config": [asdict(snapshot) for snapshot in state.config],
        "obstacles": list(state.obstacles),
        "settings": [asdict(setting) for setting in state.settings],
        "boots": [_boot(boot) for boot in state.boots],
        "boots_with_abort": [_boot(boot) for boot in state.forced_boots],
        "disk": [asdict(use) for use in state.disk],
    }
    return {name: with_times(value) for name, value in fields.items()}


def _boot(boot: Boot) -> dict[str, Any]:
    counts = {"completed": boot.completed, "shifted": boot.shifted, "lost": boot.lost}
    return asdict(boot) | {"rules": str(boot.rules)} | counts | {"loses_nothing": boot.loses_nothing}
