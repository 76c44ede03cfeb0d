"""Messages that consumer groups gave up: table `dead_letters`, a row for each message of a dead letter topic."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.lifecycle.consumption.retry_copies import (
    message_chains,
    number_of_attempts,
    retry_copies,
    selected_copies,
)
from spark_mq.lifecycle.consumption.retry_facts import retry_topics
from spark_mq.lifecycle.consumption.retry_topic import RetryTopic
from spark_mq.lifecycle.messages.arrays import flags
from spark_mq.lifecycle.messages.log_source import LogSource, StoreLog
from spark_mq.lifecycle.messages.selected_messages import SelectedMessages
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.lifecycle import DEAD_LETTERS


def dead_letters_rows(store: MessageStore, consumer_group: str | None = None) -> pa.Table:
    """The dead letters of consumer groups, in the order of the log; see `dead_letters`.

    Args:
        consumer_group: Only the dead letters of this group; None for all.

    Returns:
        The rows of table `dead_letters`; `DEAD_LETTERS` says what its columns are.
    """
    return dead_letters_of(StoreLog(store), consumer_group)


def dead_letters_of(source: LogSource, consumer_group: str | None = None) -> pa.Table:
    """The dead letters of any source; arguments and result as for `dead_letters_rows`."""
    selected = selected_copies(source)
    table = dead_letters(selected, retry_topics(source.location, selected))
    return table if consumer_group is None else table.filter(pc.equal(table["consumer_group"], consumer_group))


def dead_letters(selected: SelectedMessages, topics: dict[str, RetryTopic]) -> pa.Table:
    """The dead letters of consumer groups, in the order of the log.

    `reconsume_times` is how often the message was consumed in vain, and `retries_found` the number of its retries in
    the log: fewer if some expired, or if the group gave up the message before. `origin_...` is the message that was
    returned first, NULL if the dead letter does not say that.

    Args:
        selected: The result of `selected_copies`.
    """
    groups = {name: topic.consumer_group for name, topic in topics.items()}
    copies = retry_copies(selected.messages, groups)
    chains, has_chain = message_chains(copies)
    rows = np.flatnonzero(flags(copies["is_dead_letter"]))
    attempts = number_of_attempts(copies, chains, rows)
    dead = copies.take(pa.array(rows))
    columns = {name: dead[name] for name in DEAD_LETTERS.schema.names if name in dead.column_names}
    columns["retries_found"] = pa.array(attempts, mask=~has_chain[rows])
    columns["origin_topic"] = pc.coalesce(dead["RETRY_TOPIC"], dead["DLQ_ORIGIN_TOPIC"])
    return pa.table([columns[name] for name in DEAD_LETTERS.schema.names], schema=DEAD_LETTERS.schema)
