"""The archive of Java classes with which the Spark of a test starts in half the time, and the options of those JVMs.

`python -m tests.support.class_archive` writes it (`make prepare`). A JVM that has other jars than those of the archive
starts without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.stores import OWN_STORES, RealStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE: Final = Path(sys.prefix) / "spark.jsa"
"""In the environment of the Spark whose classes it has."""

STORE: Final = RealStore("workload-533", OWN_STORES)

# A JVM that runs for seconds is half the work without its second compiler and the threads of its collector.
# With one compiler a JVM has 48 MiB for compiled code. Spark fills them, and the JVM then looks for code to drop, and
# compiles it again: a tenth of the CPU time of tests of archives.
_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
# Small queries take longer to compile than to run.
_SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "4",
    # For its pages, which no test looks at, Spark describes the plan of every query.
    "spark.sql.ui.explainMode": "simple",
}
# A JVM to which the archive does not belong would print that on stdout.
_SHARED: Final = f"-XX:SharedArchiveFile={ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"


def java_options() -> str:
    """The options of a JVM that a test starts, for `JDK_JAVA_OPTIONS`."""
    return f"{_QUICK} {_SHARED}" if ARCHIVE.exists() else _QUICK


def quick_spark_options() -> str:
    """The same, and settings for small queries, which any Spark in such a JVM has unless its command sets others."""
    return " ".join([java_options(), *(f"-D{name}={value}" for name, value in _SETTINGS.items())])


def main() -> None:
    """Use Spark, whose JVM writes the archive when it ends."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from spark_mq.archive.delta import delta_settings

    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        written = Path(folder) / ARCHIVE.name
        os.environ["JDK_JAVA_OPTIONS"] = f"{_QUICK} -XX:ArchiveClassesAtExit={written} -Xlog:disable"
        os.environ["PYSPARK_PYTHON"] = sys.executable
        settings = {
            **delta_settings(),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.log.level": "ERROR",
            "spark.sql.warehouse.dir": folder,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        builder = SparkSession.builder.master("local[2]")
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        use_spark(spark, Path(folder))
        gateway = SparkContext._gateway
        assert gateway is not None
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        written.replace(ARCHIVE)


def use_spark(spark: SparkSession, folder: Path) -> None:
    """Do what tests do: read a store, rebuild its files, and write, change and read a Delta table."""
    from spark_mq import rebuild

    store, table = str(STORE.unpack(folder)), str(folder / "table")
    messages = spark.read.format("rocketmq").load(store)
    rebuild(spark, store, str(folder / "rebuilt"), broker_conf=str(STORE.broker_conf))
    messages.write.format("delta").save(table)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE queue_offset = 1")
    spark.read.format("delta").load(table).createOrReplaceTempView("archived")
    messages.createOrReplaceTempView("messages")
    join = "SELECT m.topic, count(*) FROM messages m JOIN archived a USING (commit_log_offset) GROUP BY 1 ORDER BY 2"
    spark.sql(join).collect()


if __name__ == "__main__":
    main()
