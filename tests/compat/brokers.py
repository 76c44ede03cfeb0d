"""`make compat-brokers`: brokers of every release make stores, and judge what is made of them here.

A release has two small stores, which are kept: one of all kinds of messages, and one of a broker that was killed. The
tests that have a store of each release as their parameter run on these stores. What they came to is written into the
README, between its `compat-brokers` marks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from tests.broker import harness
from tests.broker.make_stores import NO_TIMERS, SETTINGS, StoreMaker, settings_of
from tests.compat.table import table_head, table_line, write_table
from tests.support.stores import PROJECT

FACTS = "tests/store/test_versions.py"
FILES = "tests/indexer/test_brokers_files.py"
TAGS = "tests/indexer/test_tag_entries.py"
SERVED = "tests/broker/test_versions.py"
CHECKS = {
    "rows": (f"{FACTS}::test_rows_are_the_messages_of_the_broker",),
    "queues": (
        f"{FACTS}::test_log_and_queues_begin_and_end_where_the_broker_says",
        f"{FACTS}::test_get_message_answers_as_the_version",
        f"{FACTS}::test_offsets_by_time_are_those_of_the_version",
    ),
    "look-ups": (
        f"{FACTS}::test_look_ups_by_key_answer_as_the_version",
        "tests/store/test_broker_answer.py::test_by_tags_a_broker_finds_the_messages_that_have_them",
        f"{FACTS}::test_messages_are_found_by_offset_and_by_id",
    ),
    "verify": (f"{FACTS}::test_verify_finds_nothing",),
    "rebuild": (
        f"{FILES}::test_queue_files_are_the_brokers",
        f"{FILES}::test_index_files_are_the_brokers",
        f"{TAGS}::test_without_an_index_the_files_show_the_version",
    ),
    "restore": (
        "tests/restorer/test_tagged_index.py::test_a_restore_makes_the_index_that_was_there",
        f"{SERVED}::test_a_broker_serves_a_restored_store",
        f"{SERVED}::test_a_boot_takes_the_files_of_a_restored_store_as_its_own",
    ),
    "boot after `kill -9`": ("tests/store/test_recovery.py::test_a_start_of_its_version_did_what_is_said",),
}
"""By column of the table: the tests that must hold."""


def main() -> int:
    """Every release, one after the other; 1 where a check did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the stores are kept")
    parser.add_argument("versions", nargs="*", help="the releases to try; without them all, and the table is written")
    arguments = parser.parse_args()
    lacking = harness.missing()
    if lacking is not None:
        raise SystemExit(lacking)
    lines = table_head("RocketMQ", *CHECKS, "jars of other releases")
    status = 0
    for version in arguments.versions or harness.EVERY_VERSION:
        outcomes = outcomes_of(version, stores_of(version, arguments.folder / version))
        others = [f"{jar} {other}" for jar, other in harness.NEIGHBOURS.get(version, {}).items()]
        lines.append(table_line(version, *outcomes, ", ".join(others) or "none"))
        print(lines[-1], flush=True)
        status |= any(outcome != "yes" for outcome in outcomes)
    if not arguments.versions:
        write_table(PROJECT / "README.md", "compat-brokers", lines)
    return status


def stores_of(version: str, folder: Path) -> Path:
    """The folder with the stores of a release in `versions/`, which are made unless they are there."""
    if not folder.is_dir():
        digits, making = version.replace(".", ""), folder.with_name(f"{version}.making")
        target = making / "versions"
        shutil.rmtree(making, ignore_errors=True)
        target.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="stores-") as scratch:
            maker = StoreMaker(Path(scratch), target)
            maker.few_of_each(f"p{digits}", version)
            booted = maker.killed(f"k{digits}", version, attempts=3)
            maker.describe(f"k{digits}.booted", booted, settings_of(version, SETTINGS, NO_TIMERS), version)
        for kind in "pk":
            (target / f"{kind}{digits}.how").write_text(f"{version}\n")
        making.rename(folder)
    return folder


def outcomes_of(version: str, stores: Path) -> list[str]:
    """What the tests of each column came to: `yes`, or the first line that says why not."""
    digits = version.replace(".", "")
    report = stores / "report.xml"
    tests = [test for column in CHECKS.values() for test in column]
    options = ["-q", "-p", "no:cacheprovider", "-k", f"p{digits} or k{digits}"]
    command = [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *tests]
    environment = {**os.environ, "SPARK_MQ_STORES": str(stores), "SPARK_MQ_SOAK": "1"}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    failures: dict[str, str] = {}
    ran = set()
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.attrib["name"].partition("[")[0]
        if case.find("skipped") is None:
            ran.add(name)
        for child in (*case.iter("failure"), *case.iter("error")):
            failures.setdefault(name, child.attrib["message"].partition("\n")[0])
    return [outcome([test.rpartition("::")[2] for test in column], ran, failures) for column in CHECKS.values()]


def outcome(tests: list[str], ran: set[str], failures: dict[str, str]) -> str:
    """What the tests of a column came to."""
    absent = [f"{test} did not run" for test in tests if test not in ran]
    return next(iter([*absent, *(failures[test] for test in tests if test in failures)]), "yes")


if __name__ == "__main__":
    sys.exit(main())
