"""What people read of the tables: the manual of the data source, pages of `docs/`, and views for the `spark-sql` shell.

`python -m spark_mq.tables.manual` writes the pages and `conf/tables.sql` again, from the root of the source tree.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from spark_mq.tables.all_tables import TABLES
from spark_mq.tables.live import (
    CLUSTER_OPTIONS,
    LIVE_MESSAGES_OPTIONS,
    LIVE_READ_OPTIONS_OF_STREAMS,
    LIVE_STREAM_OPTIONS,
    LIVE_TABLES,
    LIVE_WRITE_OPTIONS,
    ROUTE,
)
from spark_mq.tables.messages import READ_OPTIONS_OF_STREAMS, STREAM_OPTIONS, WRITE_OPTIONS
from spark_mq.tables.table import PATH, SKIP_UNREADABLE, STORES, Column, Option, Table
from spark_mq.tables.table import TABLE as TABLE_OPTION

_WIDTH = 116
_MARKED = re.compile(r"(<!-- made from spark_mq/tables: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
_VIEWS = re.compile(r"CREATE OR REPLACE TEMPORARY VIEW messages\n.*", re.DOTALL)
_RULES = (
    "An option that is unknown, or has no effect on the table, is an error. Spark passes no column list to a Python "
    'data source. To read only some columns, give them as a schema: `.schema("topic STRING, queue_id INT")`. Without '
    "bodies, a read of `messages` is several times as fast. Options that are times have the forms of `startTimestamp`."
)
_STREAM = f"""\
Table `messages` with `spark.readStream`: the messages that a broker appends, or that arrive segment by segment.
Each message is read once, when its record is whole. An offset of the stream is a commit log offset; the messages
before it were read. The columns are those of messages. With `Trigger.AvailableNow`, the stream ends where the log
ended when the query started.

Options {", ".join(READ_OPTIONS_OF_STREAMS)} are as in messages.
"""
_STREAM_EXAMPLE = """\
>>> stream = spark.readStream.format("rocketmq").option("maxBytesPerTrigger", "1g").load(store)
>>> stream.writeStream.format("delta").option("checkpointLocation", checkpoint).start(table)
"""
_WRITE = """\
`df.write.format("rocketmq").mode(mode).save(store)` makes a store that a broker boots from, out of rows with
columns of messages: commit log, consume queues, index files, checkpoint and config files. Only column topic is
required. Rows that have commit_log_offset, queue_id and queue_offset keep these offsets, and the bytes of their
records as far as the columns tell them (properties_bytes, stored_body, born_timestamp_millis,
store_timestamp_millis). Other rows are stored in their order, and get new offsets.

Save mode `append` makes the store, or appends to the store that exists; rows get new offsets then. Save mode
`overwrite` sets a store that exists aside as `STORE.backup-TIME`; nothing is deleted. The broker must be stopped.
Spark knows no other mode for this format, and asks for one of the two if none is given. The store appears when it
is complete; a write that fails changes nothing. `spark_mq.restore` does the same with more cores and machines:
here, only the rows are encoded by tasks, and one process on the driver's machine does everything else.
"""
_WRITE_EXAMPLE = """\
>>> rows = spark.sql("SELECT 'orders' AS topic, array('order-1') AS keys, 'paid' AS body")
>>> rows.write.format("rocketmq").mode("append").save(store)
"""
_LIVE = f"""\
A path `rocketmq://namesrv:9876,namesrv2:9876` names a running cluster by its name servers. Its tables are
{", ".join(LIVE_TABLES)}. Their first columns are cluster, broker and store, the broker's
address; the others are those of the table of a store. A read changes nothing in a broker.
"""
_LIVE_EXAMPLE = """\
>>> spark.read.format("rocketmq").option("topic", "orders").load("rocketmq://127.0.0.1:9876").show()
"""
_LIVE_STREAM = f"""\
Messages of a live cluster with `spark.readStream`: an offset of the stream has the queue offset of each queue.

Options {", ".join(option.name for option in LIVE_READ_OPTIONS_OF_STREAMS)} are as in a read.
"""
_LIVE_STREAM_EXAMPLE = """\
>>> stream = spark.readStream.format("rocketmq").option("topicPattern", "orders-.*").load("rocketmq://127.0.0.1:9876")
>>> stream.writeStream.format("delta").option("checkpointLocation", checkpoint).start(table)
"""
_LIVE_WRITE = """\
`df.write` and `writeStream` send rows to topics of a live cluster, at least once. Columns: topic, body, tags, keys,
unique_key, properties, flag, queue_id, sharding_key, delay_level, deliver_timestamp.
"""
_LIVE_WRITE_EXAMPLE = """\
>>> rows.write.format("rocketmq").option("topic", "orders").mode("append").save("rocketmq://127.0.0.1:9876")
"""
_INTRO = """\
An Apache RocketMQ store directory as tables, without a broker.

The name of the format is `rocketmq`. Options of every table:
"""


def manual() -> str:
    """The docstring of the data source: all tables, options and columns."""
    common = (PATH, STORES, SKIP_UNREADABLE, TABLE_OPTION)
    parts = [_INTRO, *_options(common), "", _rules()]
    for table in TABLES.values():
        about = f"One row is {table.row}.\n\n{table.about}"
        parts += _section(table.name, about, table.options, table.columns, example_of(table))
        if table.name == "messages_by_key":
            parts += _section("streaming", _STREAM, STREAM_OPTIONS, (), _STREAM_EXAMPLE)
            parts += _section("writing", _WRITE, WRITE_OPTIONS, (), _WRITE_EXAMPLE)
    parts += _section("a live cluster", _LIVE, (*CLUSTER_OPTIONS, *LIVE_MESSAGES_OPTIONS), (), _LIVE_EXAMPLE)
    parts += _section("streaming of a live cluster", _LIVE_STREAM, LIVE_STREAM_OPTIONS, (), _LIVE_STREAM_EXAMPLE)
    parts += _section("writing to a live cluster", _LIVE_WRITE, LIVE_WRITE_OPTIONS, (), _LIVE_WRITE_EXAMPLE)
    parts += _section(
        ROUTE.name, f"One row is {ROUTE.row}.\n\n{ROUTE.about}", ROUTE.options, ROUTE.columns, ROUTE.example
    )
    return textwrap.indent("\n".join(parts), "    ").strip()


def _rules() -> str:
    return textwrap.fill(f"The tables are {', '.join(TABLES)}. {_RULES}", _WIDTH)


def _section(
    title: str, about: str, options: Sequence[Option], columns: Sequence[Column], example: str
) -> Iterator[str]:
    yield from ("", title, "-" * len(title), about.rstrip(), "")
    yield from _options(options)
    if columns:
        yield from (*([""] if options else []), "Columns:", "")
        for column in columns:
            extra = "; only if a schema names it" if column.is_extra else ""
            yield _wrapped(f"{column.name} {column.type} : {column.meaning}{extra}")
    yield from ("", example.rstrip())


def _options(options: Iterable[Option]) -> Iterator[str]:
    return (_wrapped(f"{option.name} : {option.effect}.") for option in options)


def _wrapped(text: str) -> str:
    if len(text) <= _WIDTH:  # `textwrap` takes its time
        return text
    return textwrap.fill(text, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def example_of(table: Table) -> str:
    """Code that reads the table, and rows as Spark shows them."""
    read = f'>>> spark.read.format("rocketmq").option("table", "{table.name}").load(store).show()\n'
    return table.example if table.example.startswith(">>>") else read + table.example


def _page_tables() -> Iterator[str]:
    yield from ("| table | one row is |", "| --- | --- |")
    yield from (f"| [`{table.name}`](#{table.name}) | {table.row} |" for table in TABLES.values())
    for table in TABLES.values():
        yield from ("", f"### {table.name}", "", *_page_table(table))


def _page_table(table: Table) -> Iterator[str]:
    yield from (f"One row is {table.row}.", "")
    if table.about:
        yield from (table.about.strip(), "")
    if table.command:
        yield from (f"From a shell: `spark-mq {table.command} STORE`.", "")
    if table.options:
        yield from (*_page_options(table.options), "")
    yield from ("| column | type | meaning |", "| --- | --- | --- |")
    for column in table.columns:
        extra = "; only if a schema names it" if column.is_extra else ""
        yield f"| `{column.name}` | `{column.type}` | {_cell(column.meaning)}{extra} |"
    yield from ("", "```text", example_of(table).rstrip(), "```")


def _page_options(options: Iterable[Option]) -> Iterator[str]:
    yield from ("| option | meaning |", "| --- | --- |")
    yield from (f"| `{option.name}` | {_cell(option.effect)} |" for option in options)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def filled(page: str) -> str:
    """The text of a page with its parts that are made from the tables."""
    parts: dict[str, Callable[[], Iterator[str]]] = {
        "tables": _page_tables,
        "stream_options": lambda: _page_options(STREAM_OPTIONS),
        "write_options": lambda: _page_options(WRITE_OPTIONS),
        "cluster_options": lambda: _page_options(CLUSTER_OPTIONS),
        "live_options": lambda: _page_options(LIVE_MESSAGES_OPTIONS),
        "live_stream_options": lambda: _page_options(LIVE_STREAM_OPTIONS),
        "live_write_options": lambda: _page_options(LIVE_WRITE_OPTIONS),
        "route": lambda: _page_table(ROUTE),
    }
    return _MARKED.sub(lambda mark: "\n".join([mark[1], *parts[mark[2]](), "", mark[3]]), page)


def views(text: str) -> str:
    """The text of `conf/tables.sql` with a view of each table."""
    made = []
    for table in TABLES.values():
        options = "path '${store}'" + (f", table '{table.name}'" if table.name != "messages" else "")
        made.append(f"CREATE OR REPLACE TEMPORARY VIEW {table.name}\nUSING rocketmq\nOPTIONS ({options});\n")
    return _VIEWS.sub(lambda _: "\n".join(made), text)


if __name__ == "__main__":
    for name in ("tables", "streaming", "write", "live"):
        page = Path(f"docs/{name}.md")
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    sql = Path("conf/tables.sql")
    sql.write_text(views(sql.read_text(encoding="utf-8")), encoding="utf-8")
