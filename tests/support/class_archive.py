"""The archive of Java classes with which the JVMs of tests start in half the time, and the options of those JVMs.

`python -m tests.support.class_archive` makes it (`make prepare`). A JVM that finds other jars than those of the archive
starts without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.stores import OWN_STORES, RealStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE: Final = Path(sys.prefix) / "spark.jsa"
"""Beside the Spark whose classes it has."""

# A JVM that runs for seconds is half the work without its second compiler and the threads of its collector.
_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
STORE: Final = RealStore("workload-533", OWN_STORES)


def java_options() -> str:
    """The options of a JVM that a test starts, for `JDK_JAVA_OPTIONS`."""
    # Without the second option, a JVM to which the archive does not belong says so on stdout.
    return (
        f"{_QUICK} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable -Xlog:all=error:stderr" if ARCHIVE.exists() else _QUICK
    )


def make_archive(target: Path, use: Callable[[SparkSession, Path], None]) -> None:
    """Write the classes that Spark loads for `use` to `target`; a JVM does so when it ends."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from spark_mq.archive.delta import delta_settings

    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        written = Path(folder) / target.name
        os.environ["JDK_JAVA_OPTIONS"] = f"{_QUICK} -XX:ArchiveClassesAtExit={written} -Xlog:disable"
        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        for name, value in {**delta_settings(), "spark.sql.warehouse.dir": folder}.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        use(spark, Path(folder))
        gateway = SparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        written.replace(target)


def use_spark(spark: SparkSession, folder: Path) -> None:
    """What tests do with Spark: read a store, rebuild its files, and write and read Delta tables."""
    from spark_mq import rebuild

    store, table = str(STORE.unpack(folder)), str(folder / "table")
    messages = spark.read.format("rocketmq").load(store)
    messages.groupBy("topic").count().collect()
    rebuild(spark, store, str(folder / "rebuilt"), broker_conf=str(STORE.broker_conf))
    messages.write.format("delta").save(table)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE queue_offset = 1")
    spark.read.format("delta").load(table).createOrReplaceTempView("archived")
    messages.createOrReplaceTempView("messages")
    join = "SELECT m.topic, count(*) FROM messages m JOIN archived a USING (commit_log_offset) GROUP BY 1 ORDER BY 2"
    spark.sql(join).collect()


if __name__ == "__main__":
    make_archive(ARCHIVE, use_spark)
