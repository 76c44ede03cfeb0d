"""Apache RocketMQ message stores as tables in Spark, and their files rebuilt without a broker.

A *store* is a broker's store directory (`storePathRootDir`): a path, or a URI of S3 or HDFS. A store that is read
is never changed, and no broker is needed.

- `RocketMQDataSource`: the Spark data source `rocketmq`. Its docstring has all tables, options and columns.
- `register`: makes the data source and the table function `rocketmq_lookup` known to a Spark session.
- `sql`: the result of a Spark SQL query over stores, which reads only the rows and columns that the query needs.
- `look_up`: the messages of the keys of a DataFrame, by the index files.
- `sail_session`: a session of Sail, which runs such queries without Java.
- `explain`: the access path of a read, and its cost.
- `rebuild`: writes `consumequeue/` and `index/` from `commitlog/`, byte for byte as the broker does.
- `verify`: checks everything in a store against its commit log; the result has findings, counts and a verdict.
- `repair`: makes again from the log what is wrong with a store; `spark-mq repair --undo` puts the old files back.
- `compare`: where the logs of two replicas differ, which of them is damaged there, and what only one has; no Spark.
- `repair_from`: takes what is damaged in a store's log from a replica; a plan by default; no Spark.
- `restore`: makes a store out of an archive, another store or a DataFrame, or appends messages to a stopped store.
- `retention`: when each segment of a store expires, and what is deleted with it; no Spark.
- `expire`: deletes old segments, queue files and index files as a broker does; a dry run by default; no Spark.
- `report`: makes a page about stores, for people: how they are, who lags, what expires; no Spark.
- `life`: all that happened to the messages that have a key or an id; no Spark.
- `why_not_consumed`: why a consumer group did not consume a message; no Spark.
- `filters`: RocketMQ's filters of subscriptions, tags and SQL92, as Spark columns, and for Arrow tables.
- `MessageStore`: one store in Python, without Spark or a JVM: messages by id, key, queue offset or time.
- `SparkMqError`: the base class of all errors of this package; its subclasses are in `spark_mq.errors`.

In Spark:

>>> import spark_mq
>>> spark_mq.register(spark)
>>> messages = spark.read.format("rocketmq").option("topic", "orders").load("/data/store")
>>> messages.groupBy("tags").count().show()
>>> query = "SELECT tags, count(*) FROM prod.messages WHERE topic = 'orders' GROUP BY tags"
>>> spark_mq.sql(spark, query, stores={"prod": "/data/store"}).show()
>>> report = spark_mq.rebuild(spark, "/data/store", "/data/rebuilt")

Without Spark:

>>> with spark_mq.MessageStore("/data/store") as store:
...     table = store.query_message("orders", "order-42")  # a pyarrow.Table, newest message first

The command `spark-mq` does the same from a shell; `spark-mq --help` lists what it can do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_mq._version import __version__ as __version__
from spark_mq.errors import SparkMqError

if TYPE_CHECKING:
    from spark_mq import filters
    from spark_mq.archive.sql import sql
    from spark_mq.datasource import RocketMQDataSource, register
    from spark_mq.expirer import expire
    from spark_mq.indexer.rebuild import rebuild
    from spark_mq.lifecycle.life.life import life
    from spark_mq.lifecycle.why_not_consumed import why_not_consumed
    from spark_mq.repairer.comparison import compare
    from spark_mq.repairer.from_replica import repair_from
    from spark_mq.repairer.repair import repair
    from spark_mq.reporter.report import report
    from spark_mq.restorer.restore import restore
    from spark_mq.sail import sail_session
    from spark_mq.source.explain import explain
    from spark_mq.source.lookup_function import look_up
    from spark_mq.store.message_store import MessageStore
    from spark_mq.store.retention import retention
    from spark_mq.verifier.verify import verify

__all__ = [
    "MessageStore",
    "RocketMQDataSource",
    "SparkMqError",
    "compare",
    "expire",
    "explain",
    "filters",
    "life",
    "look_up",
    "rebuild",
    "register",
    "repair",
    "repair_from",
    "report",
    "restore",
    "retention",
    "sail_session",
    "sql",
    "verify",
    "why_not_consumed",
]

_MODULES = {
    "MessageStore": "spark_mq.store.message_store",
    "RocketMQDataSource": "spark_mq.datasource",
    "compare": "spark_mq.repairer.comparison",
    "expire": "spark_mq.expirer",
    "explain": "spark_mq.source.explain",
    "life": "spark_mq.lifecycle.life.life",
    "look_up": "spark_mq.source.lookup_function",
    "register": "spark_mq.datasource",
    "rebuild": "spark_mq.indexer.rebuild",
    "repair": "spark_mq.repairer.repair",
    "repair_from": "spark_mq.repairer.from_replica",
    "report": "spark_mq.reporter.report",
    "restore": "spark_mq.restorer.restore",
    "retention": "spark_mq.store.retention",
    "sail_session": "spark_mq.sail",
    "sql": "spark_mq.archive.sql",
    "verify": "spark_mq.verifier.verify",
    "why_not_consumed": "spark_mq.lifecycle.why_not_consumed",
}


def __getattr__(name: str) -> Any:
    """The public object `name`, imported on first use: a point look-up must not wait for Spark's import.

    Raises `AttributeError` for any other name.
    """
    import importlib

    if name == "filters":
        return importlib.import_module("spark_mq.filters")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
