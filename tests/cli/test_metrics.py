"""`--metrics`: a file that Prometheus reads, with the figures that the same command prints as JSON."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from spark_mq.cli.main import main
from spark_mq.cli.output.metrics import Metric, metrics_text
from tests.support.stores import WORKLOAD, Unpack

LINE = re.compile(r'([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (\S+)')
"""A sample of the text format (prometheus.io/docs/instrumenting/exposition_formats)."""
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\[\\"n])*)"')

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples_in(text: str) -> Samples:
    """The samples by name and labels without the store; each name has its type before its first sample."""
    found: Samples = {}
    typed: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert kind == "gauge"
            assert name not in typed
            typed.add(name)
        elif not line.startswith("# HELP "):
            sample = LINE.fullmatch(line)
            assert sample is not None, line
            assert sample[1] in typed
            labels = frozenset((name, value) for name, value in LABEL.findall(sample[2]) if name != "store")
            found[sample[1].removeprefix("spark_mq_"), labels] = float(sample[3])
    return found


def run(
    words: list[str], file: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[dict[str, object]], Samples]:
    """The exit status, the printed objects, and the samples of a command."""
    status = main([*words, "--metrics", str(file), "--json"])
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return status, printed, samples_in(file.read_text(encoding="utf-8"))


def test_text_of_hostile_names_and_unknown_values() -> None:
    metrics = [Metric("a", "what", 1, {"topic": 'x"y\\z\nw'}), Metric("b", "not known", None), Metric("a", "what", 2.5)]
    text = metrics_text(metrics)
    assert text == (
        '# HELP spark_mq_a what\n# TYPE spark_mq_a gauge\nspark_mq_a{topic="x\\"y\\\\z\\nw"} 1\nspark_mq_a{} 2.5\n'
    )
    assert len(samples_in(text)) == 2


def test_verify(unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))
    shutil.rmtree(store / "consumequeue" / "OrderEvents")
    file = tmp_path / "out.prom"
    for words, check in ((["verify", str(store), "--quiet"], "whole"), (["verify", str(store), "--quick"], "quick")):
        status, (report,), samples = run(words, file, capsys)
        label = frozenset({("check", check)})
        assert status == 1
        assert samples["verify_sound", label] == 0
        counts = report["counts"]
        assert isinstance(counts, dict)
        found = {
            dict(labels)["code"]: value for (name, labels), value in samples.items() if name.endswith("code_findings")
        }
        assert found == counts
        assert sum(value for (name, _), value in samples.items() if name == "verify_findings") == sum(counts.values())
        assert samples["verify_log_bytes", label] == report["log_bytes"]
        assert (("verify_messages", label) in samples) == (check == "whole")


def test_state(unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, (state,), samples = run(["state", str(unpacked(WORKLOAD))], tmp_path / "out.prom", capsys)
    assert status == 0
    assert samples["state_clean_stop", frozenset()] == 1
    log, disk, boots = state["log"], state["disk"], state["boots"]
    assert isinstance(log, dict)
    assert isinstance(disk, list)
    assert isinstance(boots, list)
    assert samples["state_log_end", frozenset()] == log["end"]
    for use in disk:
        assert samples["state_disk_bytes", frozenset({("tree", use["tree"])})] == use["size"]
    for boot in boots:
        assert samples["state_next_boot_lost_messages", frozenset({("versions", boot["rules"])})] == boot["lost"]


def test_lag(unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, rows, samples = run(["lag", str(unpacked(WORKLOAD))], tmp_path / "out.prom", capsys)
    assert status == 0
    assert rows
    for row in rows:
        labels = frozenset((name, str(row[name])) for name in ("consumer_group", "topic", "queue_id"))
        assert samples.get(("lag_messages", labels)) == row["lag"]
        assert samples["lag_unknown", labels] == (row["lag"] is None)


def test_a_file_that_cannot_be_written(unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["state", str(unpacked(WORKLOAD)), "--metrics", str(tmp_path / "file" / "out.prom")]) == 1
    assert "--metrics" in capsys.readouterr().err
