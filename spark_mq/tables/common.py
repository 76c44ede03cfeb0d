"""Options and columns that several tables have."""

from __future__ import annotations

from spark_mq.tables.table import Column, Option

TOPIC = Option("topic", "only this topic", "TOPIC", column="topic")
CONSUMER_GROUP = Option("consumerGroup", "only this consumer group", "GROUP", column="consumer_group")
BROKER_VERSION = Option(
    "brokerVersion",
    "such as 5.1.0, or a line of versions, 4.9 or 5; by default the versions that the store's files show. 4.9 and 5 "
    "offer a different min_offset if a queue starts with pre-blank units",
)


def at(what: str) -> Option:
    """Option `at`; `what` is for what the time counts."""
    return Option("at", f"the time {what}; by default now", "TIME")


def broker_conf(settings: str) -> Option:
    """Option `brokerConf`; `settings` are those that have an effect."""
    return Option("brokerConf", f"the file of the broker's settings, for {settings}", "FILE")


STORE_NAME_COLUMNS = (
    Column("cluster", "STRING", "the broker's cluster, brokerClusterName"),
    Column("broker", "STRING", "the broker, brokerName"),
    Column("store", "STRING", "the store's name, or its path"),
)
"""The columns that say which store a row comes from: the first ones of a read of several stores."""

PATH = Option(
    "path",
    "the broker's store directory (`storePathRootDir`): a path, or a URI of S3 or HDFS. Required, except for "
    "several stores: give `load` a list of paths or a pattern (`/data/broker-*`, `s3://bucket/{a,b}`), or option "
    "`stores`",
)
TABLE = Option("table", "the name of the table, `messages` by default")
STORES = Option(
    "stores",
    'several stores: a file with a JSON list, or the list itself: `[{"name": "a", "cluster": "prod", "broker": '
    '"broker-a", "path": "/data/a", "broker_conf": "/etc/a.conf"}]`. Only `path` is needed in an entry; a relative '
    "path is relative to the file's folder; `options` can have more options of the read of this store. Each table is "
    "then the union of the stores' tables, with columns cluster STRING, broker STRING and store STRING before the "
    "others. Names that are not given are those of `broker_conf`, or `DefaultCluster`, `DEFAULT_BROKER` and the path. "
    "A read of one store has these columns if a schema names them",
)
SKIP_UNREADABLE = Option(
    "skipUnreadable",
    "of several stores: `true` leaves out a store that cannot be read, with a warning in the log of the driver. By "
    "default, such a store is an error that names it. Damage is an error, or not, as `mode` says",
)
