"""The doors of a store in any order, with damage in between: an answer depends on the files, and on nothing before it.

The judge is the same store at another place, which is opened anew for each question, without what this process
remembers of files. Stores that were opened before a damage may say what they have read: their messages are those of
some time since.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from spark_mq.errors import SparkMqError
from spark_mq.source.time_window import QueueComparison
from spark_mq.store import store_lock
from spark_mq.store.message_store import MessageStore
from spark_mq.store.store_lock import StateMemory, forget_everything
from tests.support.disk_damages import DamagedStore, damage_disk
from tests.support.doors import DOORS, Questions, answer, ask, with_rows
from tests.support.soak import SOAKS
from tests.support.stores import STORES, Unpack

_TICK_SECONDS = 0.02
"""More than the steps of the clock from which files get their times."""
_OF_ENDS = ("log ends", "messages of a topic", "messages in a time", "by queue, log")
"""Doors that remember something of files are asked more often."""
_OF_ROWS = ("by id", "by key", "by unique key", "as broker")

_DOORS = st.sampled_from([*sorted(DOORS), *3 * _OF_ENDS])


class OneStore(RuleBasedStateMachine):
    """A store that is opened several times, damaged, and asked."""

    store: ClassVar[DamagedStore]
    twin: ClassVar[Path]
    asked: ClassVar[Questions]

    def __init__(self) -> None:
        super().__init__()
        forget_everything()
        self.opened: list[tuple[MessageStore, int]] = []
        self.messages: list[dict[int, object]] = []
        self._note_state()

    def _note_state(self) -> None:
        """Make the twin that store, and note the messages that it has now."""
        for file in self.store.sound:
            source, target = self.store.path / file, self.twin / file
            if not source.exists():
                target.unlink(missing_ok=True)
            elif not target.exists() or source.read_bytes() != target.read_bytes():
                shutil.copy2(source, target)
        rows: Any = with_rows(self._judge("messages"))
        whole = [row for row in rows if isinstance(row, dict) and row["_corrupt_record"] is None]
        self.messages.append({row["commit_log_offset"]: row for row in whole})

    def _judge(self, door: str) -> object:
        with mock.patch.object(StateMemory, "recall", return_value=None):
            return ask(door, self.twin, self.asked)

    @rule(seed=st.integers(0, 10_000))
    def damage(self, seed: int) -> None:
        self._change(lambda: damage_disk(self.store, random.Random(seed)))

    @rule(seed=st.integers(0, 10_000), part=st.sampled_from(["commitlog", "consumequeue"]))
    def lose_end(self, seed: int, part: str) -> None:
        """The last bytes of a queue file or of the log become zeros: what a process remembers of ends is not so now."""
        chance, files = random.Random(seed), self.store.files(part)
        file = files[-1] if part == "commitlog" else chance.choice(files)
        data = self.store.read(file)
        kept = max(len(data.rstrip(b"\0")) - chance.choice([20, 400, 5000]), 0)
        self._change(lambda: self.store.put(file, kept, bytes(len(data) - kept)))

    @rule()
    def put_right(self) -> None:
        self._change(self.store.restore)

    def _change(self, change: Callable[[], object]) -> None:
        time.sleep(_TICK_SECONDS)
        change()
        time.sleep(_TICK_SECONDS)
        self._note_state()

    @rule(doors=st.lists(_DOORS, min_size=1, max_size=3), recalls_end=st.sampled_from([True, True, False]))
    def open(self, doors: list[str], recalls_end: bool) -> None:
        try:
            store = MessageStore(str(self.store.path), self.asked.version, self.asked.conf, recalls_end=recalls_end)
        except SparkMqError:
            return
        self.opened.append((store, len(self.messages)))
        for door in doors:
            assert answer(door, store, self.asked) == self._judge(door), door

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), door=_DOORS)
    def ask_again(self, data: st.DataObject, door: str) -> None:
        store, since = data.draw(st.sampled_from(self.opened[-3:]))
        said = answer(door, store, self.asked)
        if since == len(self.messages):
            assert said == self._judge(door), door
        elif door in _OF_ROWS and isinstance(said, list):
            for row in (row for rows in with_rows(said) if isinstance(rows, list) for row in rows):
                known = [messages.get(row["commit_log_offset"]) for messages in self.messages[since - 1 :]]
                assert row in known, door

    def teardown(self) -> None:
        for store, _ in self.opened:
            store.close()
        self.store.restore()


@pytest.mark.parametrize("name", ["crc-533", "workload-49x"])
def test_an_answer_depends_on_the_files_alone(
    name: str, unpacked: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file that changed a moment ago could change again at the same time. Here it does not: see `_TICK_SECONDS`.
    monkeypatch.setattr(store_lock, "_SETTLED_NANOS", 0)
    # What was found before is used wherever it can be, although it saves nothing in a small store.
    monkeypatch.setattr(QueueComparison, "cost", lambda comparison: 0)
    for module in ("live_end", "message_store"):
        monkeypatch.setattr(f"spark_mq.store.{module}.end_by_index", lambda records: None)
    packed = STORES[name]
    OneStore.store = DamagedStore.of(packed, unpacked(packed), tmp_path)
    OneStore.twin = Path(shutil.copytree(OneStore.store.path, tmp_path / "twin"))
    OneStore.asked = Questions.of(packed)
    run_state_machine_as_test(
        OneStore, settings=settings(max_examples=100 if SOAKS else 3, stateful_step_count=15, deadline=None)
    )
