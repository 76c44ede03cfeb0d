"""The values of arguments: times, numbers, pairs, the file of the broker's settings, a running cluster as STORE."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from spark_mq.cli.output import visible
from spark_mq.errors import OptionError
from spark_mq.format.java_text import decode_utf8
from spark_mq.tables.table import LIVE_SCHEME

if TYPE_CHECKING:
    from spark_mq.live.options import LiveOptions


_AGO = re.compile(r"-([0-9]{1,9})\s?([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAYS_AGO = {"today": 0, "yesterday": 1}
_OPTIONS = ("--begin", "--end", "--at", "--from-where", "--to")
_DESCENDING = re.compile(r"-[a-z]\w+")
VARIABLE = "SPARK_MQ_BROKER_CONF"
_BESIDE = ("broker.conf", "conf/broker.conf")
"""Paths relative to the parent folder of a store."""
_ROOT = "storePathRootDir"
_EXAMPLES = {
    "--property": "region=eu",
    "--spark-conf": "spark.driver.memory=4g",
    "--topic-map": "orders=orders_2025",
    "--store": "prod=/data/store",
    "--archive": "old=/lake/messages",
    "--option": "mode=FAILFAST",
}
OR_CLUSTER = f", or a running cluster: {LIVE_SCHEME}NAME_SERVER:9876"
"""The help of STORE goes on with this if the command also asks a running cluster."""


def parse_moment(name: str, text: str, now: datetime) -> int:
    """Milliseconds since the epoch of a time as a person types it; errors name what it is given for.

    `-90s`, `-15m`, `-1h`, `-2d` or `-1w`: so long before now; `now`; `today` or `yesterday`: the beginning of the day,
    in this machine's time zone, as `now` is; or what `parse_time` accepts.
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
        # With the offset of that moment, which is another one than now after a change to or from summer time.
        return epoch_millis(datetime(day.year, day.month, day.day).astimezone())
    try:
        return parse_time(name, text)
    except OptionError as error:
        raise OptionError(f"{error}; or -90s, -15m, -1h, -3d, -1w, now, today, yesterday") from error


def picked(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The values of some arguments by their names, as the parameters of a function with the same names."""
    return {name: getattr(arguments, name) for name in names}


def join_relative_times(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--begin -1h` and `--sort -lag` joined by `=`: `argparse` takes such a word for an option."""
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
    `given` is the value of `--broker-conf`: an empty text means no file. `store` is None if no file can be beside it.
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


def pair(option: str) -> Callable[[str], tuple[str, str]]:
    """A parser of NAME=VALUE; its error shows an example of the option, and not the text, which can be a secret."""

    def parse(text: str) -> tuple[str, str]:
        name, sign, value = text.partition("=")
        if not name or not sign or not value:
            raise argparse.ArgumentTypeError(f"give NAME=VALUE, such as {_EXAMPLES[option]}")
        return name, value

    return parse


def whole(what: str, most: int = (1 << 63) - 1, give: str = "0 or more", least: int = 0) -> Callable[[str], int]:
    """A parser of a whole number, by default from 0 on; its error says what the number is."""

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}: give {give}")
        return int(text)

    return parse


def number(what: str, least: float, most: float) -> Callable[[str], float]:
    """A parser of a number from `least` to `most`; its error says what the number is."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}: give a number from {least:,g} to {most:,.0f}")
        return value

    return parse


HOURS = number("a number of hours", 0, 8_760_000)
QUEUE_ID = whole("a queue id", (1 << 31) - 1)
ROWS = whole("a number of rows")
PARSERS: Mapping[str, Callable[[str], Any]] = {
    "H": HOURS,
    "QUEUE": QUEUE_ID,
    "CORES": whole("a number of threads", 1024, "1 to 1024", least=1),
    "OFFSET": int,
    "SECONDS": number("an interval in seconds", 0.1, 86_400),
    "DAYS": number("a number of days", 0, 365_000),
    "HOURS": HOURS,
}
"""What parses a value, by what stands for it in `--help`."""


def _size(option: str, text: str) -> int:
    from spark_mq.format.amounts import parse_size
    from spark_mq.store.log.commit_log import MIN_SPLIT_SIZE

    return parse_size(option, text, MIN_SPLIT_SIZE if option == "--split-size" else 1)


def _moment(option: str, text: str) -> int:
    return parse_moment(option, text, datetime.now().astimezone())


def _word_or_moment(option: str, text: str) -> str | int:
    word = text.strip().lower()
    return word if word in ("first", "last") else _moment(option, text)


CHECKED_LATE: Mapping[str, Callable[[str, str], str | int]] = {
    "TIME": _moment,
    "first|last|TIME": _word_or_moment,
    "SIZE": _size,
}
"""The same for values whose parsers take the option, too, and raise `OptionError`."""


def lines_of(option: str, file: str) -> list[str]:
    """The lines of a text file that an option names; `-` is stdin."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise OptionError(f"{option} {file}: {error.strerror}") from error
    return decode_utf8(data).splitlines()


def place_stores_file(words: Sequence[str]) -> list[str]:
    """The words of a command line, in which the file of `--stores` is also the first argument, where STORE is."""
    if not words or words[0] == "sql":  # it has no STORE
        return list(words)
    for number, word in enumerate(words):
        if word == "--":
            break
        if word == "--stores" and number + 1 < len(words):
            return [words[0], words[number + 1], *words[1:]]
        if word.startswith("--stores="):
            return [words[0], word.removeprefix("--stores="), *words[1:]]
    return list(words)


def cluster_options(client_conf: str | None, address: str, **options: object) -> LiveOptions:
    """How a cluster is read: the options of a file (`--client-conf`), and those of `options` that are not None."""
    from spark_mq.live.options import parse_live_options
    from spark_mq.store.config.broker_conf import BrokerConf

    given = {name: str(value) for name, value in options.items() if value is not None}
    return parse_live_options(BrokerConf.of(client_conf).settings | given | {"path": address})


def refuse(arguments: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Raise `OptionError` if one of the options with these names is given; the error has its name, and then `why`."""
    for name in names:
        value = getattr(arguments, name, None)
        if value is not None and value is not False and value not in ("", []):
            raise OptionError(f"--{name.replace('_', '-')}{why}")


def refuse_client_conf(arguments: argparse.Namespace) -> None:
    """Raise `OptionError` if `--client-conf` is given, and no running cluster is."""
    refuse(arguments, ["client_conf"], f" has only an effect on a running cluster, {LIVE_SCHEME}NAME_SERVER:9876")
