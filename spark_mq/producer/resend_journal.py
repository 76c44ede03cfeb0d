"""The journal of a resend, a file that says which messages were sent again, also after a kill.

Its first line names the resend. Each other line is a JSON object: `{"begin": ID, "topic", "unique_key"}` is on the disk
before the message is sent, and `{"sent": ID}` or `{"refused": ID, "reason"}` follows the answer of the broker. So a run
that was killed leaves at most one message of which the journal does not know whether it was sent. A last line without
its end was being written at the kill, and does not count.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from io import FileIO
from typing import Any, Self

from spark_mq.errors import OptionError, OutputInUseError, StorageError
from spark_mq.io.local import flush_to_disk, open_regular

_KIND = "spark-mq resend 1"
_NO_JOURNAL = "the file is not a journal of spark-mq resend: give another one"


@dataclass(frozen=True)
class Begun:
    """A message that was going to be sent: its topic, and the unique key that it got."""

    topic: str
    unique_key: str


@dataclass
class Journal:
    """What a run and those before it did, by the identities of messages.

    Attributes:
        resend: What the first line says: from where to where.
        sent: The messages that a broker stored.
        uncertain: Those that were going to be sent, and of which no line says what became of them.
        unique_keys: The unique keys of all that was or may have been sent: no message with one of them is a new one.
    """

    path: str | None
    resend: Mapping[str, str | None]
    sent: set[str] = field(default_factory=set)
    uncertain: dict[str, Begun] = field(default_factory=dict)
    unique_keys: set[str] = field(default_factory=set)
    _file: FileIO | None = None

    @classmethod
    def read(cls, path: str | None, resend: Mapping[str, str | None]) -> Self:
        """The journal of a resend, for a dry run; an empty one if there is no file.

        Raises `OptionError` for the journal of another resend, and `StorageError` for a file that is damaged, or none.
        """
        journal = cls(path, resend)
        if path is not None and os.path.lexists(path):
            with FileIO(open_regular(path)) as file:
                journal._load(file.readall())
        return journal

    @classmethod
    @contextmanager
    def writing(cls, path: str, resend: Mapping[str, str | None]) -> Iterator[Self]:
        """A context with the journal of a resend, which is made if there is none, for one run at a time.

        Raises the errors of `read`, and `OutputInUseError` if another run has the journal.
        """
        with FileIO(open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise OutputInUseError(f"{path}: another run has this journal: wait until it ends") from error
            journal = cls(path, resend, _file=file)
            whole = journal._load(file.readall())
            file.truncate(whole)
            if not whole:
                file.write(journal._head)
                flush_to_disk(os.path.dirname(os.path.abspath(path)))
            yield journal

    @property
    def _head(self) -> bytes:
        """The first line of the file."""
        return json.dumps({"journal": _KIND, **self.resend}).encode() + b"\n"

    def begin(self, identity: str, begun: Begun) -> None:
        """Note that a message is going to be sent; on the disk when this returns."""
        self._write({"begin": identity, **asdict(begun)})
        assert self._file is not None
        os.fsync(self._file)
        self._begin(identity, begun)

    def note_sent(self, identity: str) -> None:
        """Note that a broker stored a message."""
        self._write({"sent": identity})
        self._settle(identity, is_sent=True)

    def note_refused(self, identity: str, reason: str) -> None:
        """Note that a broker did not store a message."""
        self._write({"refused": identity, "reason": reason})
        self._settle(identity, is_sent=False)

    def _begin(self, identity: str, begun: Begun) -> None:
        self.uncertain[identity] = begun
        self.unique_keys.add(begun.unique_key)

    def _settle(self, identity: str, is_sent: bool) -> None:
        self.uncertain.pop(identity, None)
        if is_sent:
            self.sent.add(identity)

    def _write(self, entry: Mapping[str, str | None]) -> None:
        assert self._file is not None
        line = json.dumps(entry).encode() + b"\n"
        if self._file.write(line) != len(line):
            raise StorageError(f"{self.path}: the disk is full: make room, and run the command again")

    def _load(self, content: bytes) -> int:
        """Read the lines of the file; returns the number of their bytes, without a last line that has no end."""
        whole = content.rfind(b"\n") + 1
        if not whole and not self._head.startswith(content):
            raise StorageError(f"{self.path}: {_NO_JOURNAL}")
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                self._read_entry(json.loads(line), number == 1)
            except OptionError:
                raise
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                what = f"line {number} is damaged, so what was sent is not known: give a copy that is whole"
                raise StorageError(f"{self.path}: {_NO_JOURNAL if number == 1 else what}") from error
        return whole

    def _read_entry(self, entry: Mapping[str, Any], is_first: bool) -> None:
        if is_first:
            if entry["journal"] != _KIND:
                raise ValueError(entry["journal"])
            for name, value in self.resend.items():
                if entry[name] != value:
                    raise OptionError(
                        f"{self.path} is the journal of another resend: its {name} is {entry[name]}, and not {value}: "
                        "give another file"
                    )
        elif "begin" in entry:
            self._begin(str(entry["begin"]), Begun(str(entry["topic"]), str(entry["unique_key"])))
        else:
            self._settle(str(entry["sent"] if "sent" in entry else entry["refused"]), "sent" in entry)
