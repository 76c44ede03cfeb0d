"""How a command is declared: its name, what it does, and its arguments as a text that reads like its `--help`."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import cleandoc
from typing import Any

from spark_mq.cli.arguments import CHECKED_LATE, PARSERS, pair
from spark_mq.cli.exit_status import statuses_text
from spark_mq.errors import OptionError, similar
from spark_mq.tables.table import heads_and_texts, is_cluster

Run = Callable[[argparse.Namespace], int]
Kind = Callable[[str], Any] | Sequence[str]
"""What parses the value of an argument, or the values that are accepted."""

_SHARED = """\
STORE                   the broker's store directory (storePathRootDir)
TOPIC                   the topic's name
TABLE                   the archive's table of messages: a path, or a catalog name
QUEUE                   the queue's id
OFFSET                  the message's offset in the queue
--stores FILE           instead of STORE: a JSON list of stores, each with name, cluster, broker, path and broker_conf;
                        the answer is that of all of them, and says where it was found
--skip-unreadable       of several stores: leave out a store that cannot be read, and say so (default: an error)
--cluster NAME          the store's cluster, in an archive of several stores
--broker NAME           the store's broker, in an archive of several stores
--store-name NAME       the store's name, in an archive of several stores
--assume-defaults       make index files with RocketMQ's maxHashSlotNum and maxIndexNum if neither --broker-conf nor an
                        index file tells them (default: make none; a broker with other settings would find nothing in
                        them)
--broker-version V      such as 5.1.0, or 4.9 or 5 (default: as files show)
--at TIME               the time for which the question is answered (default: now)
--begin TIME            only messages stored at TIME or later: epoch milliseconds, ISO 8601 with a zone, a time as the
                        commands print it, -90s, -15m, -1h, -2d, yesterday
--end TIME              only messages stored at TIME or earlier
--tag TAGS              only messages with one of these tags: 'a || b'
--key KEY               only messages with this key, in KEYS or as unique key
--property NAME=VALUE   only messages whose property NAME has this value; can be repeated
--body-contains TEXT    only messages whose body contains TEXT, as UTF-8
--filter SQL92          only messages for which this expression of RocketMQ is TRUE: "price > 5 AND region = 'eu'"
--columns A,B,C         print only these columns, in this order; also with --json
--full                  print every row whole: one field a line, instead of a table
--client-conf FILE      of a running cluster: a properties file with options of docs/live.md, such as accessKey and tls
--any-host              accept an offset message id that names another host than the message's store host: for a store
                        that moved
--body-file FILE        write the message's body, unchanged, to FILE; - is stdout, which then gets nothing else
--body {text,json,hex,base64,raw,none}
                        the form of bodies: text, json (indented, if the body is JSON), hex, base64, raw (only the
                        bodies, unchanged, a line break after each), or none to leave them out. Without it, the form
                        that fits the body: indented JSON, text, or a hex dump of the first 512 bytes; in a table text.
                        With --json base64 is the default, and in another form a body that is not text is an object
                        with its Base64
--check-index           read each index file whole before it is used, and check that it is sound
--explain               print the access path and its cost; do not run the query
--json                  print the report as one JSON object
--metrics FILE          also write the figures to FILE, in the text format of Prometheus
--scratch DIR           a folder for temporary files that every machine sees (default: a temporary folder of this
                        machine)
--split-size SIZE       bytes of the log per task (128m)
--apply                 make the changes
--quiet                 print no progress
--engine {local,spark}  where the job runs: in threads of this process, without Java, or on Spark (default: local if
                        everything is on this machine's disk, and neither a setting of Spark nor SPARK_REMOTE is given)
--cores CORES           the threads of the engine local (default: all cores of this process)
--spark-conf KEY=VALUE  a setting of Spark, such as spark.driver.memory=4g; can be repeated
--packages COORDINATES  Maven packages for Spark, such as org.apache.hadoop:hadoop-aws:3.4.2
"""
"""The help of arguments that several commands have: a command only names them."""
STORES = "--stores FILE\n--skip-unreadable"
"""The arguments of a command that can take the place of STORE by several stores."""
SPARK = "--spark-conf KEY=VALUE\n--packages COORDINATES"
"""The arguments of a command that starts Spark."""
JOB = f"--json\n--quiet\n--engine {{local,spark}}\n--cores CORES\n{SPARK}"
"""The arguments of a command that runs a job and prints its report."""


@dataclass(frozen=True)
class Command:
    """A command, and the function that runs it; `command` explains the arguments.

    The help begins with the `example`, without `spark-mq` and the name. `kinds` and `defaults` are by the names under
    which the function finds the values.
    """

    name: str
    arguments: Sequence[str]
    run: Run
    example: str
    description: str = ""
    epilog: str = ""
    usage: str = ""
    kinds: Mapping[str, Kind] | None = None
    defaults: Mapping[str, Any] | None = None

    def add_to(self, commands: argparse._SubParsersAction[CommandParser], summary: str) -> None:
        """Add the parser of the command; the summary says what it does."""
        parser = commands.add_parser(
            self.name,
            prog=f"spark-mq {self.name}",
            usage=f"spark-mq {self.name} [OPTION]... {self.usage or self._needed()}".strip(),
            help=summary,
            description=cleandoc(self.description or f"Print {summary}."),
            epilog="\n\n".join(filter(None, (cleandoc(self.epilog), statuses_text(self.name)))),
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
        )
        parser.example = f"spark-mq {self.name} {self.example}".strip()
        group: argparse._ActionsContainer = parser
        for argument in _declared(self.arguments):
            if argument.begins_choice:
                group = parser.add_mutually_exclusive_group(required=argument.is_required)
            elif not argument.is_alternative:
                group = parser
            argument.add_to(group, (self.kinds or {}).get(argument.dest))
        parser.set_defaults(run=self._run, **(self.defaults or {}))

    def _needed(self) -> str:
        """The arguments that the usage names: options of which one must be given, and positions."""
        options, positions, is_choice = list[str](), list[str](), False
        for argument in _declared(self.arguments):
            text = f"{argument.name} {argument.value}".strip()
            is_choice = argument.is_required or (argument.is_alternative and is_choice)
            if not argument.name:
                positions.append(text)
            elif argument.is_required:
                options.append(text)
            elif is_choice:
                options[-1] += f" | {text}"
        return " ".join([*(f"({text})" if " | " in text else text for text in options), *positions])

    def _run(self, arguments: argparse.Namespace) -> int:
        self._refuse_cluster(arguments)
        for argument in _declared(self.arguments):
            text = getattr(arguments, argument.dest, None)
            if not argument.name and text == "":
                raise OptionError(f"{argument.value.strip('[]')} is empty: give a text")
            if argument.value in CHECKED_LATE and text is not None:
                setattr(arguments, argument.dest, CHECKED_LATE[argument.value](argument.name, text))
        return self.run(arguments)

    def _refuse_cluster(self, arguments: argparse.Namespace) -> None:
        """Raise `OptionError` for the address of a running cluster, if the command can only read files."""
        if hasattr(arguments, "client_conf"):
            return
        for given in (getattr(arguments, name) for name in ("store", "source") if hasattr(arguments, name)):
            for source in given if isinstance(given, list) else [given]:
                if is_cluster(source):
                    raise OptionError(
                        f"{self.name} needs the files of a store, and {source} is a running cluster: give the broker's "
                        "store directory. The commands that take a cluster have --client-conf in their help"
                    )


def command(
    name: str,
    *arguments: str,
    example: str,
    description: str = "",
    epilog: str = "",
    usage: str = "",
    kinds: Mapping[str, Kind] | None = None,
    **defaults: Any,
) -> Callable[[Run], Command]:
    """Declare the command that a function runs.

    A text of arguments has a line for each: `--flag`, `--option VALUE`, `--option {a,b}`, `POSITION`, `SEVERAL...`
    or `[OPTIONAL]`, and after two spaces its help, which can go on in lines that begin with spaces. Without help, it is
    one of the shared ones. A line that begins with `| ` is an alternative to the one before: only one of them can be
    given. `! ` before an argument says that it must be given. What stands for a value says how it is parsed: see
    `PARSERS`.
    """
    return lambda run: Command(name, arguments, run, example, description, epilog, usage, kinds, defaults)


class CommandParser(argparse.ArgumentParser):
    """A parser whose help begins with an example, and whose errors name what is similar to a mistyped word."""

    example = ""

    def format_help(self) -> str:
        """The example, if there is one, and the help."""
        return f"example: {self.example}\n\n{super().format_help()}" if self.example else super().format_help()

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """Parse the words; one that is unknown is an error here, where the options are known."""
        found, unknown = super().parse_known_args(args, namespace)
        options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        if options:
            self.error(f"there is no option {options[0]}{similar(options[0], self._option_string_actions)}")
        if unknown:
            self.error(f"{unknown[0]!r} is one argument too many")
        return found, unknown

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print a help or an error. A help that cannot be written is an error, which `argparse` passes over."""
        if file is sys.stdout:
            print(message, end="", flush=True)
        else:
            super()._print_message(message, file)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        names = list(map(str, action.choices or ()))
        if action.choices is None or value in action.choices:
            return
        if isinstance(action, argparse._SubParsersAction):
            hint = similar(value, names) or "; `spark-mq --help` lists them"
            self.error(f"there is no command {value!r}{hint}")
        raise argparse.ArgumentError(action, f"{value!r} is not one of {', '.join(names)}{similar(value, names)}")


@dataclass(frozen=True)
class _Argument:
    """One declared argument: the name is empty for a position, the value for a flag."""

    name: str
    value: str
    help: str
    is_required: bool
    is_alternative: bool
    begins_choice: bool

    @property
    def dest(self) -> str:
        return (self.name.removeprefix("--") or self.value.strip("[].")).lower().replace("-", "_")

    def add_to(self, parser: argparse._ActionsContainer, kind: Kind | None) -> None:
        how: dict[str, Any] = {"help": self.help}
        if isinstance(kind, Sequence):
            how["choices"] = kind
        elif "=" in self.value:
            how |= {"action": "append", "default": [], "type": pair(self.name)}
        elif kind or self.value in PARSERS:
            how["type"] = kind or PARSERS[self.value]
        if not self.name:
            number = {"[": "?", ".": "+"}.get(self.value[0] if self.value[0] == "[" else self.value[-1])
            parser.add_argument(self.dest, metavar=self.value.strip("[]."), nargs=number, **how)
        elif not self.value:
            parser.add_argument(self.name, action="store_true", **how)
        elif self.value[0] == "{":
            parser.add_argument(self.name, choices=self.value[1:-1].split(","), **how)
        else:
            required = self.is_required and not self.begins_choice
            parser.add_argument(self.name, metavar=self.value, required=required, **how)


def _declared(texts: Sequence[str]) -> Iterator[_Argument]:
    declared = [argument for text in texts for argument in heads_and_texts(text)]
    are_alternatives = [head.startswith("| ") for head, _ in declared] + [False]
    for number, (declaration, explanation) in enumerate(declared):
        head = declaration.removeprefix("| ").removeprefix("! ")
        name, _, value = head.partition(" ") if head.startswith("-") else ("", "", head)
        begins = are_alternatives[number + 1] and not are_alternatives[number]
        is_required = declaration.startswith("! ")
        yield _Argument(name, value, explanation or _shared_help()[head], is_required, are_alternatives[number], begins)


class _HelpFormatter(argparse.HelpFormatter):
    """Fills the paragraphs of a description one by one; one with an indented line stays as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.split("\n\n")
        return "\n\n".join(text if "\n " in text else textwrap.fill(text, width) for text in paragraphs)


@cache
def _shared_help() -> Mapping[str, str]:
    return dict(heads_and_texts(_SHARED))
