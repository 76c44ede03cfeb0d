"""`make demo`: rebuilds queues and index of a real broker's store, and compares them with the broker's files."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from spark_mq.cli.progress_printer import ProgressPrinter
from spark_mq.cli.spark import spark_session
from spark_mq.indexer.rebuild import rebuild_with
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.job.tasks import LocalTasks, Tasks, spark_tasks
from spark_mq.store.config.store_paths import CONSUME_QUEUE, INDEX

SAMPLE = Path(__file__).resolve().parent.parent / "tests" / "stores" / "workload-533"


def files_below(folder: Path) -> dict[str, bytes]:
    """The content of every file, by the file's path relative to `folder`."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def contents(folder: Path) -> list[bytes]:
    """The contents of the files in `folder` and its subfolders, in the order of the file names."""
    return [content for _, content in sorted(files_below(folder).items())]


def rebuilt(tasks: Tasks, store: Path, output: Path) -> tuple[dict[str, bytes], list[bytes]]:
    """The queue files and the index files that a rebuild with these tasks writes; its report is printed."""
    with ProgressPrinter() as progress:
        request = RebuildRequest.of(str(store), str(output), broker_conf=f"{SAMPLE}.conf")
        print(rebuild_with(replace(tasks, on_progress=progress), request).to_text() + "\n")
    return files_below(output / CONSUME_QUEUE), contents(output / INDEX)


def main() -> int:
    """Query the sample's messages, rebuild its queues and index in threads and on Spark, and compare all of them.

    Returns the exit status: 0 if all files are the same.
    """
    with tempfile.TemporaryDirectory() as folder, spark_session("spark-mq demo") as spark:
        subprocess.run(["tar", "xzf", f"{SAMPLE}.tar.gz", "-C", folder], check=True)
        store = Path(folder) / SAMPLE.name
        print(f"A store that a RocketMQ 5.3.3 broker wrote: {SAMPLE.name}\n")
        messages = spark.read.format("rocketmq").load(str(store))
        messages.createOrReplaceTempView("messages")
        spark.sql(
            "SELECT topic, count(*) AS messages, count(DISTINCT queue_id) AS queues, sum(store_size) AS bytes "
            "FROM messages GROUP BY topic ORDER BY messages DESC LIMIT 8"
        ).show(truncate=40)

        brokers, brokers_index = files_below(store / CONSUME_QUEUE), contents(store / INDEX)
        shutil.rmtree(store / CONSUME_QUEUE)
        shutil.rmtree(store / INDEX)
        with spark_tasks(spark) as tasks:
            by_spark = rebuilt(tasks, store, Path(folder) / "by-spark")
        ours, our_index = rebuilt(LocalTasks(), store, store)
    equal = [name for name in brokers if ours.get(name) == brokers[name]]
    print(f"{len(equal)} of the broker's {len(brokers)} queue files are the same, byte for byte; built: {len(ours)}.")
    equal_index = sum(our_file == file for our_file, file in zip(our_index, brokers_index, strict=False))
    print(
        f"{equal_index} of its {len(brokers_index)} index files are the same apart from names; built: {len(our_index)}."
    )
    is_equal = by_spark == (ours, our_index)
    print(f"The files that Spark's tasks wrote are {'the same' if is_equal else 'OTHERS'}.")
    return 0 if is_equal and (ours, our_index) == (brokers, brokers_index) else 1


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    sys.exit(main())
