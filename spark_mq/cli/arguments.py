"""Arguments that several commands share, each with one help text."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence

_STORES_IS_NOT_STORE = ("sql",)
"""The commands whose `--stores` does not take the place of STORE: they have no such argument."""


def pair(example: str) -> Callable[[str], tuple[str, str]]:
    """A parser of NAME=VALUE for `argparse`; its error shows the example."""

    def parse(text: str) -> tuple[str, str]:
        name, sign, value = text.partition("=")
        if not name or not sign or not value:
            raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, such as {example}")
        return name, value

    return parse


def count(text: str) -> int:
    """A number of rows: 0 or a positive integer of 63 bits."""
    if not text.isascii() or not text.isdigit() or int(text) >= 1 << 63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows: give 0 or more")
    return int(text)


def hours(text: str) -> float:
    """A number of hours: 0 or more, also with a fraction."""
    if re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,6})?", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours, such as 72")
    return float(text)


def add_spark_settings(command: argparse.ArgumentParser) -> None:
    """Add `--spark-conf` and `--packages` for a command that starts Spark."""
    command.add_argument(
        "--spark-conf",
        metavar="KEY=VALUE",
        action="append",
        type=pair("spark.driver.memory=4g"),
        default=[],
        help="a setting of Spark, such as spark.driver.memory=4g; can be repeated",
    )
    command.add_argument(
        "--packages", metavar="COORDINATES", help="Maven packages for Spark, such as org.apache.hadoop:hadoop-aws:3.4.2"
    )


def add_store(command: argparse.ArgumentParser, with_several: bool = False) -> None:
    """Add STORE; and `--stores`, for a command that can take the place of STORE by several stores."""
    command.add_argument("store", metavar="STORE", help="the broker's store directory (storePathRootDir)")
    if with_several:
        add_stores_file(command)


def add_stores_file(command: argparse.ArgumentParser) -> None:
    """Add `--stores` and `--skip-unreadable`. The command needs a first positional argument `store`."""
    command.add_argument(
        "--stores",
        metavar="FILE",
        dest="stores_file",
        help="instead of STORE: a JSON list of stores, each with name, cluster, broker, path and broker_conf; the "
        "answer is that of all of them, and says where it was found",
    )
    add_skip_unreadable(command)


def add_skip_unreadable(command: argparse.ArgumentParser) -> None:
    """Add `--skip-unreadable`."""
    command.add_argument(
        "--skip-unreadable",
        action="store_true",
        help="of several stores: leave out a store that cannot be read, and say so (default: an error)",
    )


def place_stores_file(words: Sequence[str]) -> list[str]:
    """The words of a command line, in which the file of `--stores` is also the first argument, in the place of STORE.

    So each command has the same positional arguments with STORE as with `--stores FILE`.
    """
    if not words or words[0] in _STORES_IS_NOT_STORE:
        return list(words)
    for number, word in enumerate(words):
        if word == "--":
            break
        if word == "--stores" and number + 1 < len(words):
            return [words[0], words[number + 1], *words[1:]]
        if word.startswith("--stores="):
            return [words[0], word.removeprefix("--stores="), *words[1:]]
    return list(words)


def add_topic(command: argparse.ArgumentParser) -> None:
    """Add TOPIC."""
    command.add_argument("topic", metavar="TOPIC", help="the topic's name")


def add_archive_table(command: argparse.ArgumentParser) -> None:
    """Add TABLE."""
    command.add_argument("table", metavar="TABLE", help="the archive's table of messages: a path, or a catalog name")


def add_broker_conf(command: argparse.ArgumentParser, settings: str) -> None:
    """Add `--broker-conf`; `settings` names what the command takes from the file."""
    command.add_argument("--broker-conf", metavar="FILE", help=f"the broker's settings file, for {settings}")


def add_assume_defaults(command: argparse.ArgumentParser) -> None:
    """Add `--assume-defaults`."""
    command.add_argument(
        "--assume-defaults",
        action="store_true",
        help="make index files with RocketMQ's maxHashSlotNum and maxIndexNum if neither --broker-conf nor an index "
        "file tells them (default: make none; a broker with other settings would find nothing in them)",
    )


def add_broker_version(command: argparse.ArgumentParser) -> None:
    """Add `--broker-version`."""
    command.add_argument("--broker-version", metavar="V", help="such as 5.1.0, or 4.9 or 5 (default: as files show)")


def add_next_boot(command: argparse.ArgumentParser, option: str, *, is_required: bool = False) -> None:
    """Add what a question about the next boot needs: the store, the broker's version and settings, and `--json`.

    Args:
        option: The option of the version, such as `--as`; its value is `broker_version`.
        is_required: Whether the version must be given.
    """
    add_store(command)
    what = "the version of the broker that starts next, such as 5.3.3"
    command.add_argument(
        option,
        dest="broker_version",
        metavar="V",
        required=is_required,
        help=what if is_required else f"{what} (default: all that the files allow)",
    )
    add_broker_conf(command, "file sizes, and settings of the index and of recovery")
    add_json_report(command)


def add_json_rows(command: argparse.ArgumentParser) -> None:
    """Add `--json` for a command that prints rows."""
    command.add_argument("--json", action="store_true", help="print one JSON object per row, bytes in Base64")


def add_json_report(command: argparse.ArgumentParser) -> None:
    """Add `--json` for a command that prints a report."""
    command.add_argument("--json", action="store_true", help="print the report as one JSON object")


def add_check_settings(command: argparse.ArgumentParser) -> None:
    """Add the settings of a command that checks a whole store with Spark."""
    add_broker_conf(command, "file sizes, slots and entries, and delay levels")
    command.add_argument(
        "--scratch",
        metavar="DIR",
        help="a folder for temporary files that every machine sees (default: a temporary folder of this machine)",
    )
    command.add_argument("--split-size", metavar="SIZE", default="128m", help="bytes of the log per task (128m)")
    add_json_report(command)
    command.add_argument("--quiet", action="store_true", help="print no progress")
    add_spark_settings(command)
