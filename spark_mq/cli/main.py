"""`spark-mq`: one entry point, with a sub-command for each job, and what is missing if a package is not installed.

A command waits for the imports of its own module only: the modules of all commands take longer than most of them run.
Results go to stdout, progress and errors to stderr; `exit_status` has the statuses.
"""

from __future__ import annotations

import io
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from spark_mq._version import __version__
from spark_mq.cli.arguments import join_relative_times, place_stores_file
from spark_mq.cli.command import Command, CommandParser
from spark_mq.cli.exit_status import FAILED, FOUND, INTERRUPTED, INTERRUPTED_LINE, NOT_UNDERSTOOD
from spark_mq.cli.output import say, visible
from spark_mq.cli.output.terminal import discard_stdout
from spark_mq.errors import MissingPackageError, OptionError, SparkMqError
from spark_mq.job.task_errors import with_remedy

_GROUPS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "find messages": {
        "messages.look_ups": {
            "query-by-id": "by offset message ids",
            "query-by-key": "by topic and key, through the index",
            "query-by-unique-key": "by the message id that the producer got",
            "query-by-offset": "by topic, queue and queue offset",
        },
        "messages.print_message": {"print-message": "of a topic: by queue, time, tag, key, property and text"},
    },
    "understand": {
        "life": {
            "life": "what happened to a message, up to its consumers",
            "why-not-consumed": "why a consumer group did not get a message",
        },
        "allocate": {"allocate": "how a topic's queues are shared out among consumers"},
        "report": {"report": "a page about stores, for people to keep"},
        "tables": {},
    },
    "check and mend": {
        "check": {"check": "whether a broker may be started, and what is lost then"},
        "state": {"state": "how the broker stopped, what lags, what a boot does next"},
        "recover": {"recover": "exactly what the next boot does to the store"},
        "verify": {"verify": "check everything in a store against its commit log"},
        "repair": {
            "compare": "where two replicas' logs differ, and which is damaged",
            "repair": "repair files from the log, or the log from a replica",
        },
        "rebuild": {"rebuild": "rebuild consumequeue/ and index/ from commitlog/"},
    },
    "keep messages, and let them go": {
        "archive": {
            "archive": "append new messages to a Delta table",
            "maintain-archive": "join and cluster an archive's files, delete old rows",
        },
        "restore": {"restore": "make a store of an archive or a store, or append to one"},
        "retention": {
            "retention": "when segments expire, and who loses unread messages",
            "expire": "delete old segments, and their queue and index files",
        },
    },
    "act on a running cluster (a plan, until --apply)": {
        "consumers": {
            "reset-offset": "set a consumer group's offsets",
            "consume-directly": "let a connected consumer consume one message now",
        },
        "resend": {"resend": "send stored messages again, such as dead letters"},
    },
    "SQL, and spark-mq itself": {
        "sql.command": {"sql": "Spark SQL over stores, archives and running clusters"},
        "doctor": {"doctor": "what this machine lacks, and what will be slow on it"},
        "program": {
            "paths": "where the SQL files, job scripts and notebooks are",
            "compile": "compile the loops that read messages before the first query",
            "completion": "a script that completes commands in a shell",
        },
    },
}
"""The groups of `spark-mq --help`, in its order: the modules of the commands, and what each command does.

A module declares the arguments of its commands with `command.command`. The commands of `tables` are those that the
tables declare; the help only names them, and those of `program`.
"""
_MODULES = {name: commands for modules in _GROUPS.values() for name, commands in modules.items()}
_ONLY_NAMES = {"tables": "one row a line: ", "program": ""}
_WIDTH = 80
_USAGE = "spark-mq COMMAND [OPTION]... STORE ..."
_ABOUT = "Apache RocketMQ's stores without a broker. `spark-mq COMMAND --help` tells more."
_EXTRAS = {
    **dict.fromkeys(("pyspark", "py4j"), "spark"),
    "delta": "delta",
    **dict.fromkeys(("jinja2", "markupsafe", "matplotlib", "PIL"), "report"),
    "pysail": "sail",
    **dict.fromkeys(("grpc", "grpcio", "grpc_status", "googleapis-common-protos", "google", "zstandard"), "connect"),
}
"""The extra of `spark-mq` that installs a package, by the name of the package."""
_PYSPARK_LACKS = re.compile(r"\[PACKAGE_NOT_INSTALLED\] (\S+)")
"""The text with which PySpark names a missing package: it does not set `ImportError.name`."""


def commands_of(module: str) -> Mapping[str, str]:
    """The commands of a module, and what each does."""
    if module == "tables":
        from spark_mq.tables.all_tables import COMMANDS

        return {name: table.summary for name, table in COMMANDS.items()}
    return _MODULES[module]


class _Program(CommandParser):
    def format_help(self) -> str:
        """The groups of commands, which fit one screen."""
        return "".join(f"{line}\n" for line in _help())


def _help() -> Iterator[str]:
    yield f"usage: {_USAGE}"
    yield _ABOUT
    for title, modules in _GROUPS.items():
        yield title
        for module in modules:
            commands = commands_of(module)
            if module in _ONLY_NAMES:
                text = _ONLY_NAMES[module] + ", ".join(commands)
                yield from textwrap.wrap(
                    text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
                )
            else:
                yield from (f"  {command:20} {summary}" for command, summary in commands.items())


def parser(modules: Sequence[str] = tuple(_MODULES), with_arguments: bool = True) -> CommandParser:
    """The parser of the commands of some modules; without arguments, it only knows their names."""
    program = _Program(prog="spark-mq", usage=_USAGE, allow_abbrev=False)
    program.add_argument("--version", action="version", version=f"spark-mq {__version__}")
    commands = program.add_subparsers(metavar="COMMAND", required=True, parser_class=CommandParser)
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


def parser_for(arguments: Sequence[str]) -> CommandParser:
    """The parser that these arguments need: of their command, or if they do not begin with one, of all names."""
    first = arguments[0] if arguments else ""
    if first == "--version":
        return parser(())
    found = [name for name in _MODULES if first in _MODULES[name]]
    if not found and first in commands_of("tables"):
        found = ["tables"]
    return parser(found) if found else parser(with_arguments=False)


def missing_package(error: ImportError) -> MissingPackageError | None:
    """The error to print, with the `pip install` that helps; None if the package is there, but broken or too old."""
    lacks = _PYSPARK_LACKS.search(str(error))
    if lacks is None and not isinstance(error, ModuleNotFoundError):
        return None
    name = lacks[1] if lacks else (error.name or "").partition(".")[0]
    if not name or name == "spark_mq":
        return None
    extra = _EXTRAS.get(name)
    install = f"'spark-mq[{extra}]'" if extra else name
    return MissingPackageError(f"this command needs the package {name}, which is not installed: pip install {install}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    if sys.stdout is None:  # `spark-mq ... >&-`
        print("spark-mq: stdout is closed", file=sys.stderr)
        return FAILED
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # text that a terminal's encoding lacks
    with warnings.catch_warnings():
        warnings.showwarning = partial(_show_warning, warnings.showwarning)
        return _run(sys.argv[1:] if arguments is None else arguments)


def _run(arguments: Sequence[str]) -> int:
    words = place_stores_file(join_relative_times(arguments))
    try:
        parsed = parser_for(words).parse_args(words)
        status = int(parsed.run(parsed))
        sys.stdout.flush()
    except SparkMqError as error:
        print(f"spark-mq: {error}", file=sys.stderr)
        return NOT_UNDERSTOOD if isinstance(error, OptionError) else FAILED
    except BrokenPipeError:  # of rows: a report with a verdict has its own status (`print_answer`)
        discard_stdout()
        return FOUND
    except OSError as error:  # of a file or a network; no part of the package expects it
        say(with_remedy(str(error)))
        try:
            sys.stdout.flush()
        except OSError:  # else Python says it again at its end, and has a status of its own
            discard_stdout()
        return FAILED
    except ImportError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        say(str(missing))
        return FAILED
    except KeyboardInterrupt as interrupt:  # of a command without Spark
        print(f"{INTERRUPTED_LINE}{visible(str(interrupt))}", file=sys.stderr)
        return INTERRUPTED
    return status


def _show_warning(
    show_others: Callable[..., None], message: Warning | str, category: type[Warning], *place: Any, **rest: Any
) -> None:
    """Print a warning for users as one line, without the place in the code; show all others as before."""
    if category is UserWarning:
        say(str(message))
    else:
        show_others(message, category, *place, **rest)


if __name__ == "__main__":
    sys.exit(main())
