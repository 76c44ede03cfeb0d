"""What a broker does at its next start, for a program: the fields of one JSON object."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from spark_mq.cli.recover.text import verdict
from spark_mq.store.recovery import Recovery


def recovery_fields(recovery: Recovery) -> dict[str, Any]:
    """The fields; `rows` has an object for each row, in order, with all columns."""
    boot = recovery.boot
    return {
        "store": recovery.store,
        "broker_version": recovery.version,
        "rules": str(recovery.release),
        "verdict": " ".join(verdict(recovery)),
        "is_harmless": recovery.is_harmless,
        "is_clean": recovery.last_stop.is_clean,
        "is_running": recovery.last_stop.is_running,
        "obstacles": list(recovery.obstacles),
        "recovers_from": None if boot is None else boot.recovers_from,
        "checked_records": recovery.checked,
        "log_end": recovery.log_end,
        "live_end": recovery.live_end,
        "end_reason": recovery.end_reason,
        "cut_bytes": 0 if boot is None else boot.cut_bytes,
        "cut_messages": 0 if boot is None else boot.cut_messages,
        "revived_records": 0 if boot is None else boot.revived,
        "gone_messages": 0 if boot is None else boot.gone,
        "deleted_messages": 0 if boot is None else boot.deleted,
        "damaged_bytes": 0 if boot is None else boot.damaged_bytes,
        "completed": 0 if boot is None else boot.completed,
        "shifted": 0 if boot is None else boot.shifted,
        "lost": 0 if boot is None else boot.lost,
        "doubled_entries": 0 if boot is None else boot.doubled_entries,
        "rows": recovery.rows.to_pylist(),
        "settings": [asdict(setting) for setting in recovery.settings],
    }
