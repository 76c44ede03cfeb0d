"""What a plan reads, for a person: the path, and how many files, bytes and records."""

from __future__ import annotations

from spark_mq.source.planner import ReadPlan


def explain_plan(plan: ReadPlan) -> str:
    """One line: the path, the look-ups and the parts of the log."""
    said = [plan.path.value]
    keys = sum(len(look_up.keys) for look_up in plan.look_ups)
    if keys:
        said.append(f"{keys:,} keys")
    units = sum(look_up.queue.stop - look_up.queue.start for look_up in plan.look_ups if look_up.queue)
    if units:
        said.append(f"{units:,} queue offsets")
    parts = len(plan.splits) + len(plan.ranges)
    if parts:
        size = sum(split.stop - split.start for split in plan.splits) + sum(part.size for part in plan.ranges)
        segments = {split.segment.base for split in plan.splits}
        said.append(
            f"{size:,} bytes of the log, of {len(segments)} segments" if segments else f"{size:,} bytes of the log"
        )
    return "; ".join([*said, *plan.notes])
