"""`make demo`: the main job on a store that a real broker wrote, and what it proves."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from spark_mq import rebuild
from spark_mq.cli.spark import spark_session
from spark_mq.job.progress import print_progress

SAMPLE = Path(__file__).resolve().parent.parent / "tests" / "stores" / "workload-533"


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file, by its path below `folder`."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def contents(folder: Path) -> list[bytes]:
    """What the files below `folder` hold, in the order of their names."""
    return [content for _, content in sorted(files_below(folder).items())]


def main() -> int:
    """Query the sample's messages, lose its queues and index, rebuild both, and compare with the broker's."""
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

        brokers, brokers_index = files_below(store / "consumequeue"), contents(store / "index")
        shutil.rmtree(store / "consumequeue")
        shutil.rmtree(store / "index")
        report = rebuild(spark, str(store), broker_conf=f"{SAMPLE}.conf", progress=print_progress)
        print(report.to_text())
        ours, our_index = files_below(store / "consumequeue"), contents(store / "index")
    equal = [name for name in brokers if ours.get(name) == brokers[name]]
    print(f"\n{len(equal)} of the broker's {len(brokers)} queue files are the same, byte for byte; made: {len(ours)}.")
    equal_index = sum(one == other for one, other in zip(our_index, brokers_index, strict=False))
    print(f"{equal_index} of its {len(brokers_index)} index files are the same (names apart); made: {len(our_index)}.")
    return 0 if (ours, our_index) == (brokers, brokers_index) else 1


if __name__ == "__main__":
    sys.exit(main())
