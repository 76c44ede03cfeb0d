"""Apache RocketMQ message stores as tables in Spark; their derived files rebuilt without a broker.

>>> from spark_mq import MessageStore, rebuild, register, sql
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_mq.errors import SparkMqError

if TYPE_CHECKING:
    from spark_mq.indexer.rebuild import rebuild
    from spark_mq.query.sql import sql
    from spark_mq.source.datasource import RocketMQDataSource, register
    from spark_mq.source.explain import explain
    from spark_mq.store.message_store import MessageStore

__version__ = "0.1.0"
__all__ = ["MessageStore", "RocketMQDataSource", "SparkMqError", "explain", "rebuild", "register", "sql"]

_MODULES = {
    "MessageStore": "spark_mq.store.message_store",
    "RocketMQDataSource": "spark_mq.source.datasource",
    "explain": "spark_mq.source.explain",
    "register": "spark_mq.source.datasource",
    "rebuild": "spark_mq.indexer.rebuild",
    "sql": "spark_mq.query.sql",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: a point look-up must not wait for Spark."""
    import importlib

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
