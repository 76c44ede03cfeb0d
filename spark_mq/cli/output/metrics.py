"""Figures of a report in the text format of Prometheus, for the textfile collector of its node exporter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_mq.errors import StorageError

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True)
class Metric:
    """A gauge: its name without `spark_mq_`, what it says, its value, and its labels. None is a value not known."""

    name: str
    meaning: str
    value: float | None
    labels: Mapping[str, Any] = field(default_factory=dict)


def metrics_text(metrics: Iterable[Metric]) -> str:
    """The lines of a file, without those of values that are not known."""
    groups: dict[str, list[Metric]] = {}
    for metric in metrics:
        if metric.value is not None:
            groups.setdefault(f"spark_mq_{metric.name}", []).append(metric)
    lines = []
    for name, group in groups.items():
        lines += [f"# HELP {name} {group[0].meaning.translate(_ESCAPES)}", f"# TYPE {name} gauge"]
        for metric in group:
            labels = ",".join(f'{label}="{str(value).translate(_ESCAPES)}"' for label, value in metric.labels.items())
            lines.append(f"{name}{{{labels}}} {float(metric.value or 0):.17g}")
    return "".join(f"{line}\n" for line in lines)


def write_metrics(file: str | None, metrics: Iterable[Metric]) -> None:
    """Write the file of `--metrics`, whole; nothing without one. Raises `StorageError` if it cannot be written."""
    if file is None:
        return
    from spark_mq.io.location import Location
    from spark_mq.io.publish import publish

    try:
        publish(Location.resolve(file), metrics_text(metrics).encode())
    except OSError as error:
        raise StorageError(f"--metrics {file}: cannot be written: {error}") from error
