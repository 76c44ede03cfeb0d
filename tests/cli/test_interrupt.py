"""Ctrl-C: a command ends with one line, and a prompt stays. Real sessions: `test_quiet` and
`test_rebuild_command`."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import cast
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from spark_mq.cli.exit_status import INTERRUPTED, INTERRUPTED_LINE
from spark_mq.cli.interrupt import cancels_on_interrupt, ends_on_interrupt, interrupts_later
from spark_mq.cli.main import main

ENDING = """
import signal
import sys
from unittest import mock
from spark_mq.cli.interrupt import ends_on_interrupt

def stop():
    print("a stage that ends while Spark stops", file=sys.stderr, flush=True)
    print("stopped", flush=True)

session = mock.Mock()
session.stop.side_effect = stop
with ends_on_interrupt(session, lambda: "; a hint"):
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        print("the command went on")
"""


def test_a_command_stops_spark_and_ends_with_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "stopped\n", f"{INTERRUPTED_LINE}; a hint\n")


@pytest.mark.parametrize("is_connect", [False, True])
def test_a_prompt_cancels_and_stays(is_connect: bool) -> None:
    session = mock.Mock(spec=["interruptAll"] if is_connect else ["sparkContext"])
    before = signal.getsignal(signal.SIGINT)
    with cancels_on_interrupt(cast(SparkSession, session)), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    cancel = session.interruptAll if is_connect else session.sparkContext.cancelAllJobs
    cancel.assert_called_once_with()
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_while_spark_starts_waits_for_the_handler() -> None:
    session = cast(SparkSession, mock.Mock(spec=["sparkContext"]))
    steps = []

    def start() -> None:
        with interrupts_later():
            signal.raise_signal(signal.SIGINT)
            steps.append("Spark has started")

    with cancels_on_interrupt(session), pytest.raises(KeyboardInterrupt):
        start()
    assert steps == ["Spark has started"]


def test_the_handler_goes_with_the_session() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ends_on_interrupt(cast(SparkSession, mock.Mock())):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_command_without_spark_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spark_mq.cli.several_stores.MessageStore", mock.Mock(side_effect=KeyboardInterrupt))
    assert main(["query-by-offset", "/store", "orders", "0", "0"]) == INTERRUPTED
    assert capsys.readouterr() == ("", f"{INTERRUPTED_LINE}\n")


def test_an_interrupt_while_commands_are_imported_is_one_line() -> None:
    code = """
import sys
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "spark_mq.cli.tables":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from spark_mq.cli.entry import run
sys.exit(run(["topics", "/store"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", f"{INTERRUPTED_LINE}\n")
