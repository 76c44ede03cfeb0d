"""Messages on stdout: as a table, one field a line, as JSON lines, or only a body, in the form that `--body` names."""

from __future__ import annotations

import argparse
import base64
import codecs
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_mq.cli.output.terminal import is_terminal, say, terminal_width
from spark_mq.cli.output.text_table import TableStyle, TextTable, parse_columns, print_notes
from spark_mq.cli.output.value_text import ELLIPSIS, Row, bytes_text, print_fields, print_json, value_text, visible
from spark_mq.errors import BodyError, OptionError, StorageError
from spark_mq.format.message_schema import CORRUPT_RECORD, MESSAGE_SCHEMA
from spark_mq.format.system_topic import is_system_topic
from spark_mq.store.config.named_stores import STORE_COLUMNS

if TYPE_CHECKING:
    from spark_mq.lifecycle.life.situation import Situations


TEXT, JSON, HEX, BASE64, RAW, NONE = "text", "json", "hex", "base64", "raw", "none"
FORMS = (TEXT, JSON, HEX, BASE64, RAW, NONE)

MAX_DUMP_BYTES = 512
"""Bytes of a binary body that are shown if nobody asked for a form."""
_DUMP_LINE = 16

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_INDENT = "  "
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


def body_text(body: bytes, form: str, one_line: bool) -> str:
    """The body as text."""
    if form == HEX:
        return body.hex()
    if form == BASE64:
        return base64.b64encode(body).decode("ascii")
    if form == JSON and is_json(body):
        text = body.decode("utf-8")
        return "".join(_TOKEN.findall(text)) if one_line else pretty_json(text)
    return bytes_text(body)


def fitting_text(body: bytes) -> str:
    """The body in the form that fits it: indented JSON, text, or of a binary body a dump of its first bytes."""
    if is_binary(body) and len(body) <= _DUMP_LINE:
        return f"{len(body)} bytes: {body.hex(' ')}"
    if is_binary(body):
        rest = len(body) - MAX_DUMP_BYTES
        more = f"\n{ELLIPSIS} ({rest} more bytes; --body hex prints all {len(body)})" if rest > 0 else ""
        return f"{len(body)} bytes\n{hex_dump(body[:MAX_DUMP_BYTES])}{more}"
    text = body.decode("utf-8")
    return pretty_json(text) if text[:1] in "{[" and is_json(body) else text


def is_binary(body: bytes) -> bool:
    """Whether the body is not text: not UTF-8, or with a zero byte."""
    if b"\0" in body:
        return True
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


def hex_dump(data: bytes) -> str:
    r"""The bytes in hexadecimal digits, 16 in a line, after their position and before their characters."""
    lines = []
    for at in range(0, len(data), _DUMP_LINE):
        line = data[at : at + _DUMP_LINE]
        half = _DUMP_LINE // 2
        digits = f"{line[:half].hex(' '):<{3 * half - 1}}  {line[half:].hex(' '):<{3 * half - 1}}"
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in line)
        lines.append(f"{at:08x}  {digits}  |{shown}|")
    return "\n".join(lines)


def body_value(body: bytes, form: str) -> object:
    """The body as a value of a JSON line.

    A body that is JSON is that value (`json`). Other text is a string. A body that is not UTF-8 is an object with the
    body in Base64: `{"base64": "/w=="}`.
    """
    if form == HEX:
        return body.hex()
    if form == BASE64:
        return body
    if form == JSON and is_json(body):
        return json.loads(body)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode("ascii")}


def beginning(body: bytes, limit: int) -> str:
    """The body as `bytes_text`; of a body of more than `limit` bytes, only the beginning, and an ellipsis."""
    if len(body) <= limit:
        return bytes_text(body)
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(body[:limit]) + ELLIPSIS
    except UnicodeDecodeError:
        return f"{len(body)} bytes: {body[:limit].hex(' ')}{ELLIPSIS}"


def is_json(body: bytes) -> bool:
    """Whether the body is a JSON text in UTF-8, whose numbers a program can read: not `NaN`, and not `1e999`."""
    try:
        json.dumps(json.loads(body.decode("utf-8")), allow_nan=False)
    except (ValueError, RecursionError):
        return False
    return True


def pretty_json(text: str) -> str:
    """A valid JSON text with one value a line. Only the space between its tokens changes."""
    depth, pieces = 0, []
    tokens = _TOKEN.findall(text)
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else ""
        if token in ("{", "["):
            depth += 1
            is_empty = following in ("}", "]")
            pieces.append(token if is_empty else f"{token}\n{_INDENT * depth}")
        elif token in ("}", "]"):
            depth -= 1
            was_empty = index > 0 and tokens[index - 1] in ("{", "[")
            pieces.append(token if was_empty else f"\n{_INDENT * depth}{token}")
        elif token == ",":
            pieces.append(f",\n{_INDENT * depth}")
        else:
            pieces.append(": " if token == ":" else token)
    return "".join(pieces)


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
        is_table = as_table and not (self._full or self._json or self._form == RAW)
        named = ("broker",) if is_several else ()
        if is_table:
            topic = getattr(arguments, "topic", None) or ""
            is_of_broker = is_system_topic(topic) or topic.startswith(("%RETRY%", "%DLQ%"))
            known = (*named, *TABLE_COLUMNS[:3], *(_OWN_TOPIC_COLUMNS if is_of_broker else ()), *TABLE_COLUMNS[3:])
        hidden = "body" if self._form == NONE else None
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
        if self._columns is not None and self._form == NONE and "body" in self._columns:
            raise OptionError("--columns names the body, and --body none leaves it out")
        if self._body_file == STDOUT and (self._json or self._columns is not None):
            raise OptionError("--body-file -: stdout gets the body alone; leave out --json and --columns")
        if self._form == RAW and (self._json or self._columns is not None or self._full or self._body_file):
            raise OptionError(
                "--body raw: stdout gets the bodies alone; leave out --json, --columns, --full and --body-file"
            )

    def print(self, rows: Iterable[Row]) -> None:
        """Print the rows as they arrive."""
        if self._table is not None:
            self._table.write([row.get(name) for name in self._shown] for row in map(self._with_text, rows))
            return
        for row in rows:
            if self._form == RAW:
                _write_to_stdout(row, "--body raw", end=b"\n")
                continue
            if self._body_file is not None:
                _write_body(row, self._body_file)
            if self._body_file == STDOUT:
                continue
            if self._json:
                shown = self._with_body(row, lambda body: body_value(body, self._form or BASE64))
                print_json([{name: shown.get(name) for name in self._shown}])
            else:
                if self._count:
                    print()
                self._print_fields(row)
            self._count += 1

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
            if self._form != NONE:
                print(f"{'Message Body:':<20} {self._shown_body(row)}")

    def _shown_body(self, row: Row) -> str:
        body = row["body"]
        if body is None:
            return visible(f"none: {row[CORRUPT_RECORD]}")
        self._note_json(body)
        if self._form is None and is_binary(body):
            return visible(fitting_text(body), keep="\n")
        text = fitting_text(body) if self._form is None else body_text(body, self._form, one_line=False)
        if self._form is None and not self._full and is_terminal() and len(text) > _MAX_BODY_CHARACTERS:
            rest = f"{ELLIPSIS} ({len(body)} bytes; --body text prints all of them)"
            return visible(text[:_MAX_BODY_CHARACTERS], keep="\n\t") + rest
        is_laid_out = self._form == JSON or (self._form is None and text.startswith(("{", "[")))
        return ("\n" if is_laid_out and "\n" in text else "") + visible(text, keep="\n\t")

    def _with_text(self, row: Row) -> Row:
        width = terminal_width()

        def text(body: bytes) -> str:
            if self._table is not None and width is not None and self._form in (None, TEXT):
                return beginning(body, max(4 * width, 64))
            return body_text(body, self._form or TEXT, one_line=True)

        if row["body"] is None and row.get(CORRUPT_RECORD) is not None:
            return {**row, "body": f"none: {row[CORRUPT_RECORD]}"}
        return self._with_body(row, text)

    def _with_body(self, row: Row, form: Callable[[bytes], object]) -> Row:
        body = row["body"]
        if body is None or "body" not in self._shown:
            return row
        self._note_json(body)
        return {**row, "body": form(body)}

    def _note_json(self, body: bytes) -> None:
        self._not_json += self._form == JSON and not is_json(body)


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
    from spark_mq.format.message_row import plain_row

    rows = [plain_row(record) for record in records]
    for record, row in zip(records, rows, strict=True):
        meant = situations.of(record)
        values = meant.real_topic, meant.real_queue_id, meant.kind.value, meant.text or None
        row.update(zip(SITUATION_COLUMNS, values, strict=True))
    return rows
