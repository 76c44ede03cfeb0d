"""The stores of a command: STORE, or those of the file of `--stores`; and what each of them answers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from spark_mq.cli.arguments import broker_conf_path, refuse
from spark_mq.cli.output import say
from spark_mq.errors import OptionError, SparkMqError
from spark_mq.format.record import Record
from spark_mq.io.s3 import OPTIONS, with_settings
from spark_mq.store.config.named_stores import STORE_COLUMNS, NamedStore, is_unreadable, load_stores, named_error
from spark_mq.store.log.segment_files import segment_files
from spark_mq.store.message_store import MessageStore

if TYPE_CHECKING:
    from spark_mq.lifecycle.life.situation import Situations

_Answer = TypeVar("_Answer")


@dataclass
class CommandStore:
    """One store of a command; `named` has its names, and is None if it is STORE."""

    path: str
    broker_conf: str | None
    named: NamedStore | None
    _situations: Situations | None = None

    def open(self, **how: Any) -> MessageStore:
        """The opened store; `how` are more arguments of `MessageStore`."""
        return MessageStore(self.path, broker_conf=self.broker_conf, **how)

    def with_columns(self, table: pa.Table) -> pa.Table:
        """The table, with the columns that name the store if there are several."""
        return table if self.named is None else self.named.with_columns(table)

    def with_names(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row, with the columns that name the store if there are several."""
        return row if self.named is None else {**dict(zip(STORE_COLUMNS, self.named.names, strict=True)), **row}

    def rows(self, store: MessageStore, records: Sequence[Record]) -> list[Mapping[str, Any]]:
        """The rows of messages of the opened store, with what they mean, for `MessagePrinter.print`."""
        from spark_mq.cli.output.message_printer import rows_of

        return [self.with_names(row) for row in rows_of(records, self.situations(store))]

    def situations(self, store: MessageStore) -> Situations:
        """What records of the opened store mean; each call gives the same."""
        from spark_mq.lifecycle.life.situation import Situations

        self._situations = self._situations or Situations(store, store.broker_conf)
        return self._situations

    def say(self, text: str) -> str:
        """A text about the store, which names it if there are several."""
        return text if self.named is None else f"{self.named}: {text}"


def is_of_several(arguments: argparse.Namespace) -> bool:
    """Whether the command reads the stores of a file."""
    return getattr(arguments, "stores", None) is not None


def command_stores(arguments: argparse.Namespace) -> list[CommandStore]:
    """The stores of a command."""
    uses_conf = hasattr(arguments, "broker_conf")
    if not is_of_several(arguments):
        refuse(arguments, ["skip_unreadable"], " has no effect on one store: it is for --stores FILE")
        conf = broker_conf_path(arguments.broker_conf, arguments.store) if uses_conf else None
        return [CommandStore(arguments.store, conf, None)]

    if uses_conf and arguments.broker_conf:
        raise OptionError("--broker-conf is of one broker: with --stores, the file names the broker_conf of each store")
    stores = stores_of_file(arguments.stores)
    for store in stores:
        store.broker_conf = broker_conf_path(store.broker_conf, store.path) if uses_conf else None
    return stores


def stores_of_file(file: str) -> list[CommandStore]:
    """The stores of the file of `--stores`."""
    stores = []
    for named in load_stores(file):
        path = with_settings(named.path, {name: named.options[name] for name in OPTIONS if name in named.options})
        stores.append(CommandStore(path, named.broker_conf, named))
    return stores


def answers(
    arguments: argparse.Namespace, ask: Callable[[CommandStore, MessageStore], _Answer], **how: Any
) -> list[_Answer]:
    """The answer of each store, one after the other. Other arguments and the errors are those of `opened_stores`."""

    def asked(store: CommandStore) -> _Answer:
        with store.open(**how) as opened:
            return ask(store, opened)

    return [answer for _, answer in read_each(arguments, command_stores(arguments), asked)]


@contextmanager
def opened_stores(arguments: argparse.Namespace, **how: Any) -> Iterator[list[tuple[CommandStore, MessageStore]]]:
    """A context with the opened stores; with `--skip-unreadable`, a line on stderr names each one that is left out."""
    with ExitStack() as stack:

        def opened(store: CommandStore) -> MessageStore:
            found = stack.enter_context(store.open(**how))
            if store.named is not None:
                segment_files(found.location)
            return found

        yield read_each(arguments, command_stores(arguments), opened)


def read_each(
    arguments: argparse.Namespace, stores: Sequence[CommandStore], read: Callable[[CommandStore], _Answer]
) -> list[tuple[CommandStore, _Answer]]:
    """What is read of each store; the error of one that cannot be read, unless it is left out (`--skip-unreadable`)."""
    found: list[tuple[CommandStore, _Answer]] = []
    skipped: list[Exception] = []
    for store in stores:
        try:
            found.append((store, read(store)))
        except (SparkMqError, OSError) as error:
            if store.named is None:
                raise
            if not arguments.skip_unreadable or not is_unreadable(error):
                raise named_error(error, store.named) from error
            say(f"left out: {store.named}: {error}")
            skipped.append(error)
    if not found:
        raise skipped[0]
    return found
