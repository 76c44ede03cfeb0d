"""`verify --sample`: a quick check and the records of a part of the log, which is at least what was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_mq.cli.main import main
from spark_mq.errors import OptionError
from spark_mq.io.location import Location
from spark_mq.verifier.verify import LogSample
from tests.support.stores import OWN_STORES, RealStore, Unpack
from tests.support.verified import Bench

PARTS = 3


def sampled(
    bench: Bench, sample: str, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, dict[str, int], dict[str, object]]:
    """The exit status, the counts, and the report of a check of a sample."""
    conf = ["--broker-conf", str(bench.packed.broker_conf)]
    status = main(["verify", str(bench.path), "--sample", sample, "--json", "--quiet", *conf, *words])
    report = json.loads(capsys.readouterr().out)
    return status, report["counts"], report


def test_all_parts_are_the_whole_log(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    reports = [sampled(bench, f"{number + 1}/{PARTS}", capsys)[2] for number in range(PARTS)]
    assert sum(int(str(report["messages"])) for report in reports) == len(bench.messages)
    assert sum(int(str(report["sampled_bytes"])) for report in reports) == reports[0]["log_bytes"]
    assert all(report["is_sound"] for report in reports)
    assert "and the records of" in str(reports[0]["verdict"])


@pytest.mark.parametrize("name", ["crc-533", "killed-49x", "killed-533"])
def test_no_record_of_a_sound_log_is_a_finding(
    name: str, unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the first record of a split starts is found from the bytes before it, so no part of a body is one."""
    store = RealStore(name, OWN_STORES)
    whole = Bench.of(unpacked(store), store.name, tmp_path)
    conf = ["--broker-conf", str(store.broker_conf)]
    main(["verify", str(whole.path), "--quick", "--json", *conf])
    quick = json.loads(capsys.readouterr().out)["counts"]
    _, counts, report = sampled(whole, "1/1", capsys)
    assert counts == quick
    assert report["messages"] == len(whole.messages)


def test_damage_is_found_by_the_part_that_has_it(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = sorted((fact for fact in bench.messages if fact["bodyLenRaw"] > 20), key=lambda fact: int(fact["offset"]))
    file, position = bench.segment(int(facts[len(facts) // 2]["offset"]))
    bench.flip(file, position + 9)
    report = tmp_path / "found.jsonl"
    found = []
    for number in range(PARTS):
        status, counts, said = sampled(bench, f"{number + 1}/{PARTS}", capsys, "--report", str(report))
        found.append(counts.get("RECORD_BODY_CRC", 0))
        assert status == found[-1]
        assert ("at least 1 error" in str(said["verdict"])) == bool(found[-1])
        codes = [json.loads(line)["code"] for line in report.read_text().splitlines()]
        assert codes.count("RECORD_BODY_CRC") == found[-1]
    assert sorted(found) == [0] * (PARTS - 1) + [1]


@pytest.mark.parametrize(("sample", "least"), [("40%", 0.4), ("100%", 1.0), ("200k", 200 * 1024 / 540463), ("1g", 1.0)])
def test_at_least_so_much_is_read(sample: str, least: float, bench: Bench) -> None:
    store = Location.resolve(str(bench.path))
    size = sum(split.stop - split.start for split in LogSample.parse(sample).splits(store, 128 << 20))
    assert least * 540463 <= size <= min(least * 540463 + (64 << 10), 540463)


@pytest.mark.parametrize("text", ["0/3", "4/3", "0%", "101%", "5x", "", "1/0", "-1%"])
def test_a_part_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(OptionError, match=r"--sample .*: give N/T such as 3/30, X% such as 5%, or a size"):
        LogSample.parse(text)


def test_one_kind_of_check_at_a_time(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(bench.path), "--sample", "1/2", "--quick"]) == 2
    assert "are different checks: give one of them" in capsys.readouterr().err
