"""The stores of a command: STORE, or those of the file of `--stores`; and what each of them answers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from spark_mq.errors import OptionError, SparkMqError

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_mq.store.config.named_stores import NamedStore
    from spark_mq.store.message_store import MessageStore

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class CommandStore:
    """One store of a command.

    Attributes:
        broker_conf: The file of the broker's settings; None if there is none, or if the command does not use it.
        named: The store's names; None if the command has one store, STORE.
    """

    path: str
    broker_conf: str | None
    named: NamedStore | None

    def open(self, **how: Any) -> MessageStore:
        """The opened store; `how` are more arguments of `MessageStore`."""
        from spark_mq.store.message_store import MessageStore

        return MessageStore(self.path, broker_conf=self.broker_conf, **how)

    def with_columns(self, table: pa.Table) -> pa.Table:
        """The table, with the columns that name the store if there are several."""
        return table if self.named is None else self.named.with_columns(table)

    def with_names(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row, with the columns that name the store if there are several."""
        from spark_mq.store.config.named_stores import STORE_COLUMNS

        return row if self.named is None else {**dict(zip(STORE_COLUMNS, self.named.names, strict=True)), **row}

    def say(self, text: str) -> str:
        """A text about the store, which names it if there are several."""
        return text if self.named is None else f"{self.named}: {text}"


def is_of_several(arguments: argparse.Namespace) -> bool:
    """Whether the command reads the stores of a file."""
    return getattr(arguments, "stores_file", None) is not None


def command_stores(arguments: argparse.Namespace) -> list[CommandStore]:
    """The stores of a command."""
    from spark_mq.cli.arguments import broker_conf_path

    uses_conf = hasattr(arguments, "broker_conf")
    if not is_of_several(arguments):
        if getattr(arguments, "skip_unreadable", False):
            raise OptionError("--skip-unreadable has no effect on one store: it is for --stores FILE")
        conf = broker_conf_path(arguments.broker_conf, arguments.store) if uses_conf else None
        return [CommandStore(arguments.store, conf, None)]
    from spark_mq.io.s3 import OPTIONS, with_settings
    from spark_mq.store.config.named_stores import load_stores

    if uses_conf and arguments.broker_conf:
        raise OptionError("--broker-conf is of one broker: with --stores, the file names the broker_conf of each store")
    stores = []
    for named in load_stores(arguments.stores_file):
        path = with_settings(named.path, {name: named.options[name] for name in OPTIONS if name in named.options})
        conf = broker_conf_path(named.broker_conf, named.path) if uses_conf else None
        stores.append(CommandStore(path, conf, named))
    return stores


def answers(
    arguments: argparse.Namespace, ask: Callable[[CommandStore, MessageStore], _Answer], **how: Any
) -> list[tuple[CommandStore, _Answer]]:
    """The answer of each store. With `--skip-unreadable`, a line on stderr names each store that is left out.

    Args:
        ask: Returns the answer of an opened store.
        how: More arguments of `MessageStore`.
    """
    found: list[tuple[CommandStore, _Answer]] = []
    skipped: list[Exception] = []
    for store in command_stores(arguments):
        try:
            with store.open(**how) as opened:
                found.append((store, ask(store, opened)))
        except (SparkMqError, OSError) as error:
            _skip(arguments, store, error)
            skipped.append(error)
    if not found:
        raise skipped[0]
    return found


@contextmanager
def opened_stores(arguments: argparse.Namespace, **how: Any) -> Iterator[list[tuple[CommandStore, MessageStore]]]:
    """A context with the opened stores. The arguments and errors are those of `answers`."""
    from spark_mq.store.log.segment_files import segment_files

    with ExitStack() as stack:
        found: list[tuple[CommandStore, MessageStore]] = []
        skipped: list[Exception] = []
        for store in command_stores(arguments):
            try:
                opened = stack.enter_context(store.open(**how))
                if store.named is not None:
                    segment_files(opened.location)
                found.append((store, opened))
            except (SparkMqError, OSError) as error:
                _skip(arguments, store, error)
                skipped.append(error)
        if not found:
            raise skipped[0]
        yield found


def _skip(arguments: argparse.Namespace, store: CommandStore, error: Exception) -> None:
    """As `left_out`; the error of the only store is raised as it is."""
    if store.named is None:
        raise error
    left_out(arguments, store.named, error)


def left_out(arguments: argparse.Namespace, store: NamedStore, error: Exception) -> None:
    """Print that a store is left out; or raise the error, which names the store."""
    from spark_mq.cli.output import visible
    from spark_mq.store.config.named_stores import is_unreadable, named_error

    if not arguments.skip_unreadable or not is_unreadable(error):
        raise named_error(error, store) from error
    print(f"spark-mq: left out: {visible(f'{store}: {error}')}", file=sys.stderr)


def union(
    arguments: argparse.Namespace, read: Callable[[CommandStore, MessageStore], pa.Table], **how: Any
) -> pa.Table:
    """The rows of all stores in one table, with the columns that name the store if there are several."""
    import pyarrow as pa

    found = answers(arguments, lambda store, opened: store.with_columns(read(store, opened)), **how)
    return pa.concat_tables([table for _, table in found])


def columns_of(arguments: argparse.Namespace, names: Sequence[str]) -> list[str]:
    """The columns of a table of the command's stores; `names` are those of one store."""
    from spark_mq.store.config.named_stores import STORE_COLUMNS

    return [*STORE_COLUMNS, *names] if is_of_several(arguments) else list(names)


def importance_of(arguments: argparse.Namespace, names: Sequence[str]) -> tuple[str, ...]:
    """The columns by importance; the broker is the most important one of those that name the store."""
    return ("broker", *names, "store", "cluster") if is_of_several(arguments) else tuple(names)


def place_of(arguments: argparse.Namespace) -> str:
    """Where the command looked, as the end of a sentence."""
    from spark_mq.io.s3 import shown

    if is_of_several(arguments):
        return f"the stores of {shown(arguments.stores_file)}"
    return shown(arguments.store)
