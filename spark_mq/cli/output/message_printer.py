"""Messages on stdout: as a table, one field a line, as JSON lines, or only a body."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_mq.cli.output import bodies
from spark_mq.cli.output.json_lines import print_json
from spark_mq.cli.output.terminal import is_terminal, say, terminal_width
from spark_mq.cli.output.text_table import TableStyle, TextTable, parse_columns, print_notes
from spark_mq.cli.output.value_text import ELLIPSIS, print_fields, value_text, visible
from spark_mq.errors import BodyError, OptionError, StorageError
from spark_mq.format.message_schema import CORRUPT_RECORD, MESSAGE_SCHEMA
from spark_mq.format.system_topic import is_system_topic
from spark_mq.store.config.named_stores import STORE_COLUMNS

if TYPE_CHECKING:
    from spark_mq.lifecycle.life.situation import Situations

Row = Mapping[str, Any]

STDOUT = "-"
"""The value of `--body-file` that stands for stdout."""

SITUATION_COLUMNS = ("real_topic", "real_queue_id", "kind", "situation")
"""What a message means (`spark_mq.lifecycle.life.situation`); these columns follow those of table `messages`."""
ALL_COLUMNS = (*MESSAGE_SCHEMA.names, *SITUATION_COLUMNS)

TABLE_COLUMNS = ("store_timestamp", "queue_id", "queue_offset", "tags", "keys", "offset_message_id", "body")
"""The columns of a table of messages, without `--columns`."""
_OWN_TOPIC_COLUMNS = ("real_topic", "real_queue_id", "situation")
"""Columns that a table has besides, if the topic is one in which a broker stores messages of others."""
_IMPORTANCE = (
    *("store_timestamp", "queue_id", "queue_offset", "situation", "real_topic", "keys", "tags", "body"),
    *("offset_message_id", "real_queue_id"),
)
_MAX_BODY_CHARACTERS = 2000
"""Characters of a body on a terminal, if nobody asked for all of them."""


class MessagePrinter:
    """Prints rows of table `messages` as the arguments of a command say. `print` can be called many times."""

    def __init__(self, arguments: argparse.Namespace, as_table: bool, names_stores: bool = False) -> None:
        """`as_table`: the command prints a table, without `--full`; `names_stores`: each row names its store."""
        self._json, self._form = arguments.json, arguments.body
        self._full, self._body_file = getattr(arguments, "full", False), getattr(arguments, "body_file", None)
        is_several = names_stores or getattr(arguments, "stores", None) is not None
        known = (*STORE_COLUMNS, *ALL_COLUMNS) if is_several else ALL_COLUMNS
        self._columns = parse_columns(arguments.columns, known)
        self._check_forms()
        is_table = as_table and not (self._full or self._json or self._form == bodies.RAW)
        named = ("broker",) if is_several else ()
        if is_table:
            topic = getattr(arguments, "topic", None) or ""
            is_of_broker = is_system_topic(topic) or topic.startswith(("%RETRY%", "%DLQ%"))
            known = (*named, *TABLE_COLUMNS[:3], *(_OWN_TOPIC_COLUMNS if is_of_broker else ()), *TABLE_COLUMNS[3:])
        hidden = "body" if self._form == bodies.NONE else None
        self._shown = self._columns or [name for name in known if name != hidden]
        style = TableStyle(
            (*named, *_IMPORTANCE),
            {"body": 8, "situation": 20},
            {"body": 40},
            whole=("offset_message_id", "unique_key", "transaction_type", "born_host", "store_host"),
            sizes=("store_size",),
            shows_all=self._columns is not None,
            hint="--columns chooses columns, --full prints every field",
        )
        self._table = TextTable(self._shown, style, terminal_width()) if is_table else None
        self._count = 0
        self._not_json = 0

    def _check_forms(self) -> None:
        if self._columns is not None and self._form == bodies.NONE and "body" in self._columns:
            raise OptionError("--columns names the body, and --body none leaves it out")
        if self._body_file == STDOUT and (self._json or self._columns is not None):
            raise OptionError("--body-file -: stdout gets the body alone; leave out --json and --columns")
        if self._form == bodies.RAW and (self._json or self._columns is not None or self._full or self._body_file):
            raise OptionError(
                "--body raw: stdout gets the bodies alone; leave out --json, --columns, --full and --body-file"
            )

    def print(self, rows: Iterable[Row]) -> None:
        """Print the rows as they arrive."""
        if self._table is not None:
            self._table.write([row.get(name) for name in self._shown] for row in map(self._with_text, rows))
            return
        for row in rows:
            if self._form == bodies.RAW:
                _write_to_stdout(row, "--body raw", end=b"\n")
                continue
            if self._body_file is not None:
                _write_body(row, self._body_file)
            if self._body_file == STDOUT:
                continue
            if self._json:
                shown = self._with_body(row, lambda body: bodies.body_value(body, self._form or bodies.BASE64))
                print_json([{name: shown.get(name) for name in self._shown}])
            else:
                if self._count:
                    print()
                self._print_fields(row)
            self._count += 1

    def flush(self) -> None:
        """Let a reader of stdout see all rows that were printed."""
        sys.stdout.flush()

    def finish(self) -> None:
        """Print on stderr what a person should know about the rows."""
        sys.stdout.flush()
        if self._table is not None:
            print_notes(self._table)
        if self._not_json:
            bodies_are = "1 body is" if self._not_json == 1 else f"{self._not_json} bodies are"
            say(f"--body json: {bodies_are} not JSON, and printed as text")

    def _print_fields(self, row: Row) -> None:
        if self._columns is not None:
            print_fields([dict.fromkeys(self._columns) | dict(self._with_text(row))], self._columns)
        elif row["topic"] is None:
            for name in STORE_COLUMNS:
                if name in row:
                    print(f"{name.capitalize() + ':':<20} {visible(row[name])}")
            print(f"{'CommitLog Offset:':<20} {row['commit_log_offset']}")
            print(f"{'Corrupt:':<20} {visible(str(row[CORRUPT_RECORD]))}")
        else:  # as `mqadmin queryMsgById`
            for name, value in _fields(row).items():
                print(f"{name + ':':<20} {value_text(value)}")
            if self._body_file is not None:
                print(f"{'Message Body Path:':<20} {visible(self._body_file)}")
            if self._form != bodies.NONE:
                print(f"{'Message Body:':<20} {self._shown_body(row)}")

    def _shown_body(self, row: Row) -> str:
        body = row["body"]
        if body is None:
            return visible(f"none: {row[CORRUPT_RECORD]}")
        self._note_json(body)
        if self._form is None and bodies.is_binary(body):
            return visible(bodies.fitting_text(body), keep="\n")
        text = bodies.fitting_text(body) if self._form is None else bodies.body_text(body, self._form, one_line=False)
        if self._form is None and not self._full and is_terminal() and len(text) > _MAX_BODY_CHARACTERS:
            rest = f"{ELLIPSIS} ({len(body)} bytes; --body text prints all of them)"
            return visible(text[:_MAX_BODY_CHARACTERS], keep="\n\t") + rest
        is_laid_out = self._form == bodies.JSON or (self._form is None and text.startswith(("{", "[")))
        return ("\n" if is_laid_out and "\n" in text else "") + visible(text, keep="\n\t")

    def _with_text(self, row: Row) -> Row:
        width = terminal_width()

        def text(body: bytes) -> str:
            if self._table is not None and width is not None and self._form in (None, bodies.TEXT):
                return bodies.beginning(body, max(4 * width, 64))
            return bodies.body_text(body, self._form or bodies.TEXT, one_line=True)

        return self._with_body(row, text)

    def _with_body(self, row: Row, form: Callable[[bytes], object]) -> Row:
        body = row["body"]
        if body is None or "body" not in self._shown:
            return row
        self._note_json(body)
        return {**row, "body": form(body)}

    def _note_json(self, body: bytes) -> None:
        self._not_json += self._form == bodies.JSON and not bodies.is_json(body)


def _fields(row: Row) -> dict[str, object]:
    fields: dict[str, object] = {name.capitalize(): row[name] for name in STORE_COLUMNS if name in row}
    fields |= {
        "OffsetID": row["offset_message_id"],
        "UniqueKey": row["unique_key"],
        "Topic": row["topic"],
        "Tags": f"[{row['tags'] or ''}]",
        "Keys": f"[{' '.join(row['keys'] or ())}]",
        "Queue ID": row["queue_id"],
        "Queue Offset": row["queue_offset"],
    }
    if row.get("situation") is not None:  # not an ordinary message
        if (row["real_topic"], row["real_queue_id"]) != (row["topic"], row["queue_id"]):
            fields |= {"Real Topic": row["real_topic"], "Real Queue ID": row["real_queue_id"]}
        fields["Situation"] = row["situation"]
    more = ("reconsume_times", "born_timestamp", "store_timestamp", "born_host", "store_host")
    return {
        **fields,
        "CommitLog Offset": row["commit_log_offset"],
        **{name.replace("_", " ").title(): row[name] for name in more},
        "System Flag": row["sys_flag"],
        "Transaction": row["transaction_type"],
        "Properties": row["properties"],
    }


def _write_body(row: Row, path: str) -> None:
    body = row["body"]
    if body is None:
        raise BodyError(f"--body-file {path}: the message has no body: {row[CORRUPT_RECORD]}")
    if path == STDOUT:
        _write_to_stdout(row, "--body-file -")
        return
    try:
        Path(path).write_bytes(body)
    except OSError as error:
        raise StorageError(f"--body-file {path}: {error.strerror}") from error


def _write_to_stdout(row: Row, option: str, end: bytes = b"") -> None:
    """Write the body unchanged, and `end`; a terminal gets only text."""
    body = row["body"]
    if body is None:
        raise BodyError(f"{option}: the message has no body: {row[CORRUPT_RECORD]}")
    text = body.decode("utf-8", "replace")
    if is_terminal() and ("\ufffd" in text or visible(text, keep="\n\t") != text):
        raise OptionError(
            f"{option}: stdout is a terminal, and the body has control characters or is not text: send it to a file or "
            "to a pipe"
        )
    sys.stdout.flush()
    sys.stdout.buffer.write(body + end)
    sys.stdout.buffer.flush()


def rows_of(records: Sequence[Any], situations: Situations) -> list[dict[str, Any]]:
    """The rows of records, with what they mean, for `MessagePrinter.print`."""
    from spark_mq.cli.output.json_lines import plain_rows
    from spark_mq.format.message_row import message_row, message_table

    rows = plain_rows(message_table([message_row(record) for record in records]))
    for record, row in zip(records, rows, strict=True):
        meant = situations.of(record)
        values = meant.real_topic, meant.real_queue_id, meant.kind.value, meant.text or None
        row.update(zip(SITUATION_COLUMNS, values, strict=True))
    return rows
