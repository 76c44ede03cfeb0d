"""Exit statuses of the commands: what they mean, also for the help and the pages, and the line of one of them."""

from __future__ import annotations

from collections.abc import Mapping

FOUND = 0
"""The command is done; a query has an answer."""
FAILED = 1
"""The command failed; a line on stderr gives the reason."""
NOT_UNDERSTOOD = 2
"""An argument is wrong (`argparse` exits with this status), or its value (`OptionError`)."""
NOT_FOUND = 3
"""The query ran, and nothing matches."""
DAMAGED = 4
"""The command is done, but damage was skipped: the report names what is missing."""
SOUND, UNSOUND, COULD_NOT_RUN = 0, 1, 2
"""`verify` has statuses of its own: the store is sound; it has findings from warning up; the check could not run."""
INTERRUPTED = 130
"""Ctrl-C: 128 plus the number of SIGINT, as in shells."""

INTERRUPTED_LINE = "spark-mq: interrupted"
"""What a command prints on stderr after Ctrl-C."""

STATUSES: Mapping[int, str] = {
    FOUND: "done, or found",
    FAILED: "failed: a line on stderr gives the reason",
    NOT_UNDERSTOOD: "an argument or its value is wrong",
    NOT_FOUND: "nothing matches",
    DAMAGED: "done, but something is lost or left: the report names it",
    INTERRUPTED: "interrupted by Ctrl-C",
}
"""What each status means, if the command is not one of `OF_COMMANDS`."""

_OF_ALL = (FOUND, FAILED, NOT_UNDERSTOOD, INTERRUPTED)

OF_COMMANDS: Mapping[str, Mapping[int, str]] = {
    "check": {
        FOUND: "yes: a broker may start, and nothing is lost",
        FAILED: "no: a broker does not start, or runs already; or the check failed",
        DAMAGED: "yes, but with the losses that are named, or something is not known",
    },
    "verify": {
        SOUND: "sound: nothing, or only notes",
        UNSOUND: "not sound: findings from warning up",
        COULD_NOT_RUN: "could not run: an argument or its value is wrong, or a file cannot be read",
    },
    "compare": {
        FOUND: "the logs are the same wherever both have bytes",
        DAMAGED: "they differ: the report names each part, and which log is damaged there",
    },
    "repair": {
        FOUND: "nothing is wrong, or all of it is, or would be, repaired",
        DAMAGED: "something cannot be repaired from this store, or the check after the repair finds something",
    },
    "rebuild": {
        DAMAGED: "done, but --mode permissive skipped damage: the report names it, and the offsets without a message",
        INTERRUPTED: "interrupted by Ctrl-C: --resume continues",
    },
    "resend": {
        FOUND: "all messages that were found are sent, were sent before, or would be",
        FAILED: "some are refused or uncertain, or the run failed",
        NOT_FOUND: "none was found",
    },
    "consume-directly": {
        FOUND: "the consumer consumed the message, or would get it",
        FAILED: "it answered something else, or nothing",
        NOT_FOUND: "there is no such message, or no consumer",
    },
}
"""What statuses mean for some commands that are not a query: these, and those of `_OF_ALL`."""

_ONLY_OF_ALL = (
    *("state", "report", "recover", "retention", "allocate", "expire", "restore", "archive", "maintain-archive"),
    *("sql", "doctor", "paths", "compile", "completion"),
)
"""The other commands that are not a query."""


def statuses_text(command: str) -> str:
    """The line of the help about the exit statuses of a command."""
    query = {} if command in _ONLY_OF_ALL else {NOT_FOUND: STATUSES[NOT_FOUND]}
    own = OF_COMMANDS.get(command, query)
    said = (f"{status} {own.get(status, text)}" for status, text in STATUSES.items() if status in (*_OF_ALL, *own))
    return f"exit status: {'; '.join(said)}."


def statuses_table() -> list[str]:
    """The lines of the table of the pages: a row for each status, and for each command with a meaning of its own."""
    rows = [f"| {status} | all others | {text} |" for status, text in STATUSES.items()]
    rows += [f"| {status} | `{name}` | {text} |" for name, own in OF_COMMANDS.items() for status, text in own.items()]
    return ["| exit status | of | meaning |", "| --- | --- | --- |", *sorted(rows, key=lambda row: int(row.split()[1]))]
