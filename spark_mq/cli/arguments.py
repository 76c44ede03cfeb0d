"""Arguments that several commands share: help texts, times, and the file of the broker's settings."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath

from spark_mq.cli.output import visible
from spark_mq.errors import OptionError

_AGO = re.compile(r"-([0-9]{1,9})\s?([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAYS_AGO = {"today": 0, "yesterday": 1}
_OPTIONS = ("--begin", "--end", "--at", "--from-where")
_DESCENDING = re.compile(r"-[a-z]\w+")
VARIABLE = "SPARK_MQ_BROKER_CONF"
_BESIDE = ("broker.conf", "conf/broker.conf")
"""Paths relative to the parent folder of a store."""
_ROOT = "storePathRootDir"
_STORES_IS_NOT_STORE = ("sql",)
"""The commands whose `--stores` does not take the place of STORE: they have no such argument."""


def parse_moment(name: str, text: str, now: datetime) -> int:
    """Milliseconds since the epoch of a time as a person types it.

    Args:
        name: What the time is given for; errors name it.
        text: `-90s`, `-15m`, `-1h`, `-2d` or `-1w`: so long before now; `now`; `today` or `yesterday`: the beginning of
            the day, in the time zone of `now`; or what `parse_time` accepts.
        now: The present time, with a time zone.
    """
    from spark_mq.format.timestamp import epoch_millis, parse_time

    word = text.strip().lower()
    ago = _AGO.fullmatch(word)
    try:
        if ago is not None:
            return epoch_millis(now - timedelta(**{_UNITS[ago[2]]: int(ago[1])}))
    except OverflowError as error:
        raise OptionError(f"{name}={text!r} is before the year 1") from error
    if word == "now":
        return epoch_millis(now)
    if word in _DAYS_AGO:
        day = (now - timedelta(days=_DAYS_AGO[word])).date()
        return epoch_millis(datetime(day.year, day.month, day.day, tzinfo=now.tzinfo))
    return parse_time(name, text)


def join_relative_times(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--begin -1h` as `--begin=-1h`: `argparse` takes a word with a hyphen for an option.

    The same is done for `--sort -lag`.
    """
    joined: list[str] = []
    for argument in arguments:
        before = joined[-1] if joined else ""
        is_time = before in _OPTIONS and _AGO.fullmatch(argument)
        if is_time or (before == "--sort" and _DESCENDING.fullmatch(argument)):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def broker_conf_path(given: str | None, store: str | None) -> str | None:
    """The path of the broker's settings file; None if there is none. If it was not given, a line on stderr names it.

    A file beside the store is used only if it can be of this store: it names no `storePathRootDir`, or one whose last
    part is the name of the store's folder.

    Args:
        given: The value of `--broker-conf`; an empty text means no file.
        store: The store, a path or a URI; None if no file can be beside it.
    """
    if given is not None:
        return given or None
    named = os.environ.get(VARIABLE)
    if named is not None:
        if named and "://" not in named and not os.path.isfile(named):
            raise OptionError(f"{VARIABLE}={named}: there is no such file")
        return _used(named, VARIABLE) if named else None
    if store is None or "://" in store:
        return None
    folder = Path(os.path.abspath(store))
    for beside in _BESIDE:
        file = folder.parent / beside
        if file.is_file() and _may_belong(file, folder.name):
            return _used(str(file), "beside the store")
    return None


def _used(path: str, why: str) -> str:
    line = f"the broker's settings are {path} ({why}); {VARIABLE}='' uses none"
    print(f"spark-mq: {visible(line)}", file=sys.stderr)
    return path


def _may_belong(file: Path, store_name: str) -> bool:
    from spark_mq.store.config.broker_conf import BrokerConf

    root = BrokerConf.of(str(file)).settings.get(_ROOT)
    return root is None or PurePosixPath(root).name == store_name


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
