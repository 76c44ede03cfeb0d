"""The columns of the tables other than messages.

A worker that plans a read of messages does not import this module, which imports the modules of all tables.
"""

from __future__ import annotations

import pyarrow as pa

from spark_mq.lifecycle.consumption.consumer_progress import CONSUMER_PROGRESS_SCHEMA
from spark_mq.lifecycle.consumption.dead_letters import DEAD_LETTERS_SCHEMA
from spark_mq.lifecycle.consumption.retries import RETRIES_SCHEMA
from spark_mq.lifecycle.delays.delayed import DELAYED_SCHEMA
from spark_mq.lifecycle.statistics.duplicates import DUPLICATES_SCHEMA
from spark_mq.lifecycle.statistics.hot_keys import HOT_KEYS_SCHEMA
from spark_mq.lifecycle.statistics.rates import RATES_SCHEMA
from spark_mq.lifecycle.statistics.skew import SKEW_SCHEMA
from spark_mq.lifecycle.traces.traces import TRACES_SCHEMA
from spark_mq.lifecycle.transactions.transactions import TRANSACTIONS_SCHEMA
from spark_mq.source.options import Table
from spark_mq.store.consumer_filter_rows import CONSUMER_FILTERS_SCHEMA
from spark_mq.store.index.tables import INDEX_ENTRIES_SCHEMA, INDEX_FILES_SCHEMA
from spark_mq.store.metadata_tables import (
    CHECKPOINT_SCHEMA,
    CONSUMER_OFFSETS_SCHEMA,
    DELAY_OFFSETS_SCHEMA,
    QUEUES_SCHEMA,
    SEGMENTS_SCHEMA,
    SUBSCRIPTION_GROUPS_SCHEMA,
    TOPICS_SCHEMA,
)
from spark_mq.store.queue.batches import CONSUME_QUEUE_SCHEMA
from spark_mq.store.segment_retention import RETENTION_SCHEMA

TABLE_SCHEMAS: dict[Table, pa.Schema] = {
    Table.CONSUME_QUEUE: CONSUME_QUEUE_SCHEMA,
    Table.SEGMENTS: SEGMENTS_SCHEMA,
    Table.RETENTION: RETENTION_SCHEMA,
    Table.QUEUES: QUEUES_SCHEMA,
    Table.TOPICS: TOPICS_SCHEMA,
    Table.CONSUMER_OFFSETS: CONSUMER_OFFSETS_SCHEMA,
    Table.SUBSCRIPTION_GROUPS: SUBSCRIPTION_GROUPS_SCHEMA,
    Table.CONSUMER_FILTERS: CONSUMER_FILTERS_SCHEMA,
    Table.DELAY_OFFSETS: DELAY_OFFSETS_SCHEMA,
    Table.CHECKPOINT: CHECKPOINT_SCHEMA,
    Table.TRANSACTIONS: TRANSACTIONS_SCHEMA,
    Table.DELAYED: DELAYED_SCHEMA,
    Table.INDEX_FILES: INDEX_FILES_SCHEMA,
    Table.INDEX_ENTRIES: INDEX_ENTRIES_SCHEMA,
    Table.RETRIES: RETRIES_SCHEMA,
    Table.DEAD_LETTERS: DEAD_LETTERS_SCHEMA,
    Table.TRACES: TRACES_SCHEMA,
    Table.CONSUMER_PROGRESS: CONSUMER_PROGRESS_SCHEMA,
    Table.DUPLICATES: DUPLICATES_SCHEMA,
    Table.HOT_KEYS: HOT_KEYS_SCHEMA,
    Table.RATES: RATES_SCHEMA,
    Table.SKEW: SKEW_SCHEMA,
}
