"""The tables of a live cluster other than messages: a function each, with the rows of one broker."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path

import pyarrow as pa

from spark_mq.errors import ConfigError, ProtocolError
from spark_mq.format.arrow_array import table_of
from spark_mq.format.consume_queue import Queue
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.message_row import Row
from spark_mq.format.record import Record
from spark_mq.format.timestamp import micros
from spark_mq.io.location import Location
from spark_mq.lifecycle.consumer_progress import QueueMessage, QueueSource, consumer_progress_rows
from spark_mq.live.cluster import LiveBroker, live_brokers, message_at
from spark_mq.live.options import LiveOptions
from spark_mq.remoting.client import RemotingClient, shown
from spark_mq.remoting.requests import CONFIG_REQUESTS, config_text
from spark_mq.store.config.config_file import load_config, load_consumer_offsets
from spark_mq.store.config.named_stores import NamedStore
from spark_mq.store.config.store_paths import CONFIG
from spark_mq.store.metadata_tables import load_subscription_groups, offset_state, topic_rows
from spark_mq.tables.config import CONSUMER_OFFSETS, TOPICS
from spark_mq.tables.live import ROUTE
from spark_mq.tables.store_files import QUEUES

_PROBLEMS = {
    "NO_QUEUE": "there is no such queue: its topic was deleted, or has fewer queues now",
    "TOO_LARGE": "the queue ends before the offset: it lost its end, or its topic was deleted and made again",
}


class LiveQueues(QueueSource):
    """The queues of a broker that runs, with the contents of its config files."""

    problem: str | None = None
    behind: str | None = None

    def __init__(self, broker: LiveBroker, config: str) -> None:
        self.broker = broker
        self.location = Location.resolve(config)
        self.range = cache(broker.queue)
        """A queue from its first offset to its end, as it was when it was first asked for."""
        self.message = cache(self._message)
        """The message at an offset of a queue; None if the broker has none there."""

    @cached_property
    def problems(self) -> dict[Queue, str | None]:
        """Each queue that consumers can read; none is damaged, as far as a broker says.

        Of light message queues, which no topic configures, those are known of which a group has an offset.
        """
        topics = self.broker.topics.items()
        light = (one.topic for one in load_consumer_offsets(self.location) if one.topic.startswith(LIGHT_PREFIX))
        found = [(name, number) for name, topic in topics for number in range(topic.read_queue_nums)]
        return dict.fromkeys([*found, *((name, 0) for name in light)])

    def ends(self, queue: Queue) -> tuple[int, int]:
        """The first offset of a queue, and the one after the last."""
        found = self.range(*queue)
        return found.start, found.stop

    def _message(self, topic: str, queue_id: int, offset: int) -> Record | None:
        return message_at(self.broker, self.range(topic, queue_id), offset)

    def first_message(self, queue: Queue, start: int, stop: int) -> QueueMessage | int:
        """The message at an offset of a queue; the offset itself if the broker has none there."""
        record = self.message(*queue, start)
        return start if record is None else QueueMessage(start, record.store_timestamp, record.commit_log_offset)

    def stored(self, queue: Queue, queue_offset: int) -> int:
        """The store time of a message in milliseconds; -1 if it is not known."""
        record = self.message(*queue, queue_offset)
        return -1 if record is None else record.store_timestamp


def config_folder(broker: LiveBroker) -> tempfile.TemporaryDirectory[str]:
    """A folder with `config/`, whose files have what the broker has in memory."""
    folder = tempfile.TemporaryDirectory(prefix="spark-mq-")
    config = Path(folder.name, CONFIG)
    config.mkdir()
    for file in CONFIG_REQUESTS:
        (config / file).write_bytes(config_text(broker.client, broker.address, file))
    return folder


def queues(source: LiveQueues, options: LiveOptions) -> pa.Table:
    """The rows of table `queues`. A broker does not say whether a queue is damaged: state and problem are NULL."""
    rows = []
    for topic, queue_id in source.problems:
        if not options.selects(topic):
            continue
        first, stop = source.ends((topic, queue_id))
        row: Row = {"topic": topic, "queue_id": queue_id, "min_offset": first, "max_offset": stop}
        for end, offset in (("first", first), ("last", stop - 1)) if first < stop else ():
            record = source.message(topic, queue_id, offset)
            if record is not None:
                row[f"{end}_commit_log_offset"] = record.commit_log_offset
                row[f"{end}_store_timestamp"] = micros(record.store_timestamp)
        rows.append(row)
    return table_of(rows, QUEUES.schema)


def topics(source: LiveQueues, options: LiveOptions) -> pa.Table:
    """The rows of table `topics`; queue_count is the number of queues that consumers can read."""
    rows = load_config(source.location, "topics.json", topic_rows) or {}
    for topic, row in rows.items():
        ends = [source.ends((topic, queue_id)) for queue_id in range(row["read_queue_nums"])]
        row |= {"queue_count": len(ends), "message_count": sum(stop - first for first, stop in ends)}
        times = [source.stored((topic, number), stop - 1) for number, (first, stop) in enumerate(ends) if first < stop]
        row["last_store_timestamp"] = micros(max(times)) if times and max(times) >= 0 else None
    return table_of([rows[name] for name in sorted(rows)], TOPICS.schema)


def consumer_offsets(source: LiveQueues, options: LiveOptions) -> pa.Table:
    """The rows of table `consumer_offsets`."""
    rows = []
    for one in load_consumer_offsets(source.location):
        if not options.selects(one.topic) or options.read.consumer_group not in (None, one.consumer_group):
            continue
        has_queue = (one.topic, one.queue_id) in source.problems
        first, stop = source.ends((one.topic, one.queue_id)) if has_queue else (0, 0)
        state = offset_state(one.offset, first, stop, has_queue)
        row: Row = {
            "consumer_group": one.consumer_group,
            "topic": one.topic,
            "queue_id": one.queue_id,
            "consumer_offset": one.offset,
            "min_offset": first,
            "max_offset": stop,
            "lag": None if state in ("NO_QUEUE", "TOO_LARGE") else stop - one.offset,
            "state": state,
            "problem": _PROBLEMS.get(state),
        }
        stored = source.stored((one.topic, one.queue_id), one.offset - 1) if first < one.offset <= stop else -1
        rows.append(row | {"last_consumed_timestamp": micros(stored) if stored >= 0 else None})
    return table_of(rows, CONSUMER_OFFSETS.schema)


def subscription_groups(source: LiveQueues, options: LiveOptions) -> pa.Table:
    """The rows of table `subscription_groups`."""
    return load_subscription_groups(source.location, options.read.consumer_group)


def consumer_progress(source: LiveQueues, options: LiveOptions) -> pa.Table:
    """The rows of table `consumer_progress`."""
    read = options.read
    return consumer_progress_rows(source, read.topic, read.consumer_group, read.at)


def route(source: LiveQueues, options: LiveOptions) -> pa.Table:
    """The rows of table `route`."""
    addresses = {str(number): address for number, address in source.broker.broker.addresses.items()}
    rows = [
        {
            "topic": name,
            "perm": topic.perm,
            "read_queue_nums": topic.read_queue_nums,
            "write_queue_nums": topic.write_queue_nums,
            "addresses": addresses,
        }
        for name, topic in source.broker.topics.items()
        if options.selects(name)
    ]
    return table_of(rows, ROUTE.schema)


_ROWS: dict[str, Callable[[LiveQueues, LiveOptions], pa.Table]] = {
    rows.__name__: rows for rows in (queues, topics, consumer_offsets, subscription_groups, consumer_progress, route)
}


def live_rows(options: LiveOptions) -> Iterator[pa.Table]:
    """The rows of the table of the options, a table for each broker, with the columns cluster, broker and store."""
    rows = _ROWS[options.table]
    with RemotingClient(options.client) as client:
        for broker in live_brokers(client, options.from_slave):
            with config_folder(broker) as folder:
                try:
                    found = rows(LiveQueues(broker, folder), options)
                except ConfigError as error:
                    asked = [code.name for name, code in CONFIG_REQUESTS.items() if name in str(error)]
                    what = f"{broker.address}: the answer to {' and '.join(asked)} cannot be read"
                    raise ProtocolError(f"{what}: {shown(str(error))}") from error
            yield NamedStore(*broker.names, path=broker.address).with_columns(found)
