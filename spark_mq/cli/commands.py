"""The commands of `spark-mq`: their names, and the parser of their arguments.

A command waits for the imports of its own module only: the modules of all commands take longer than most of them run.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module

from spark_mq import __version__
from spark_mq.cli.command import Command

_MODULES: Mapping[str, Mapping[str, str]] = {
    "verify": {"verify": "check everything in a store against its commit log"},
    "repair": {"repair": "repair queues, index, checkpoint and config from the commit log; a plan first"},
    "rebuild": {"rebuild": "rebuild consumequeue/ and index/ from commitlog/"},
    "archive": {
        "archive": "append new messages to a Delta table",
        "maintain-archive": "join and cluster an archive's files, delete old rows",
    },
    "restore": {"restore": "make a store out of an archive or another store, or append to one"},
    "messages.look_ups": {
        "query-by-id": "messages by their offset message ids",
        "query-by-key": "messages by topic and key, through the index",
        "query-by-unique-key": "a message by unique key (the producer's message id), and topic if it is known",
        "query-by-offset": "one message by topic, queue and queue offset",
    },
    "messages.print_message": {"print-message": "messages of a topic, by queue, time, tag, key, property and text"},
    "life": {
        "life": "what happened to a message: transaction, delays, retries, dead letters, consumers",
        "why-not-consumed": "why a consumer group did not get a message: not yet, filtered, in retry, dead, popped",
    },
    "tables": {},
    "check": {"check": "whether a broker may be started on a store, and what is lost then"},
    "state": {"state": "whether the broker was stopped cleanly, what lags, and what the next boot does"},
    "recover": {
        "recover": "what a broker would do to a store at its next start: a dry run over the records that it would check"
    },
    "retention": {
        "retention": "when segments expire, what is deleted with them, and who loses unread messages",
        "expire": "delete old segments, and the queue and index files that go with them",
    },
    "reset_offset": {"reset-offset": "set a consumer group's offsets in a running cluster; a plan first"},
    "consume_directly": {"consume-directly": "let a connected consumer consume one message now; a plan first"},
    "resend": {"resend": "send stored messages again, such as dead letters, each of them once; a receipt first"},
    "allocate": {"allocate": "how the queues of a topic are shared out among consumers, and how uneven that is"},
    "sql.command": {"sql": "Spark SQL over stores"},
    "program": {
        "paths": "where the SQL files, job scripts and notebooks of spark-mq are",
        "compile": "compile the loops that read messages before the first query does",
        "completion": "a script that completes commands and arguments in a shell",
    },
}
"""The modules of the commands, in the order of `spark-mq --help`: their commands, and what each does.

A module declares the arguments of its commands with `command.command`. The commands of `tables` are those that the
tables declare.
"""


def commands_of(module: str) -> Mapping[str, str]:
    """The commands of a module, and what each does."""
    if module == "tables":
        from spark_mq.tables.all_tables import COMMANDS

        return {name: table.summary for name, table in COMMANDS.items()}
    return _MODULES[module]


def parser(modules: Sequence[str] = tuple(_MODULES), with_arguments: bool = True) -> argparse.ArgumentParser:
    """The parser of the commands of some modules; without arguments, it only knows their names."""
    program = argparse.ArgumentParser(
        prog="spark-mq", description="Apache RocketMQ message stores, without a broker.", allow_abbrev=False
    )
    program.add_argument("--version", action="version", version=f"spark-mq {__version__}")
    commands = program.add_subparsers(metavar="COMMAND", required=True)
    for name in modules:
        declared: dict[str, Command] = {}
        if with_arguments:
            module = import_module(f"spark_mq.cli.{name}")
            found = (*vars(module).values(), *getattr(module, "COMMANDS", ()))
            declared = {one.name: one for one in found if isinstance(one, Command)}
        for command, summary in commands_of(name).items():
            if with_arguments:
                declared[command].add_to(commands, summary)
            else:
                commands.add_parser(command, help=summary)
    return program


def parser_for(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser that these arguments need: of their command, or if they do not begin with one, of all names."""
    first = arguments[0] if arguments else ""
    if first == "--version":
        return parser(())
    found = [name for name in _MODULES if first in _MODULES[name]]
    if not found and first in commands_of("tables"):
        found = ["tables"]
    return parser(found) if found else parser(with_arguments=False)
