"""An archive of real stores, against what Apache RocketMQ said of them: nothing lost, doubled or changed."""

from __future__ import annotations

import ipaddress
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive import archived_log, table_file, writer
from spark_mq.archive.archive_tables import MESSAGES, ArchiveTables, StoreArchive, StoreIdentity
from spark_mq.archive.archived_log import choose_store, settle_name
from spark_mq.archive.archived_store import query_message
from spark_mq.archive.maintenance import maintain
from spark_mq.archive.report import BatchProgress
from spark_mq.archive.writer import _create
from spark_mq.errors import DataLossError, LogCutError, OptionError
from spark_mq.format.record import FRAME, HOST_V4_SIZE, MAGIC_V1, MAGIC_V2, Record, encode_blank
from spark_mq.io.location import Location
from spark_mq.restorer.source_facts import facts_of_archive, facts_of_store
from spark_mq.store.config.named_stores import DEFAULT_CLUSTER
from spark_mq.store.message_store import MessageStore
from spark_mq.testing import LogWriter
from tests.support.archives import READ_ONLY, A, Archive, B, digest
from tests.support.delta_rows import delta_rows
from tests.support.soak import SOAKS
from tests.support.stores import STORES, RealStore, Unpack, segment_files

pytestmark = pytest.mark.archive


def facts_of(store: RealStore, before: int = 1 << 63) -> list[tuple[int, str]]:
    return sorted((fact["offset"], fact["bodyMd5"]) for fact in store.facts("msg") if fact["offset"] < before)


def keys_of(store: RealStore) -> list[tuple[str, str, str, int]]:
    keys = set()
    for fact in store.facts("msg"):
        keys |= {(fact["topic"], key, "KEYS", fact["offset"]) for key in (fact["keys"] or "").split()}
        if fact["uniqKey"] is not None:
            keys.add((fact["topic"], fact["uniqKey"], "UNIQ_KEY", fact["offset"]))
    return sorted(keys)


@pytest.fixture
def lake(delta: SparkSession, tmp_path: Path) -> Archive:
    return Archive(delta, tmp_path / "lake")


@pytest.fixture(scope="module")
def begun(delta: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The first segment of a store archived; it is shared: no test may change it."""
    folder = tmp_path_factory.mktemp("begun")
    store, lake = B.unpack(folder), Archive(delta, folder / "lake")
    for file in segment_files(store)[1:]:
        file.unlink()
    lake.run(store)
    return lake


def hide(files: Iterable[Path], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for file in files:
        shutil.move(file, folder / file.name)


def test_nothing_is_lost_or_doubled_whatever_happens_between_runs(
    lake: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, hidden = A.unpack(tmp_path / "stores"), tmp_path / "hidden"
    log = store / "commitlog"
    segments = segment_files(store)
    assert len(segments) >= 5

    # A segment is missing in the middle: the batch that meets it fails, and those before it were appended.
    hide(segments[3:], hidden)
    shutil.move(store / "consumequeue", hidden / "consumequeue")
    shutil.copy(hidden / segments[4].name, log)
    # Spark writes these rows, as older versions did; the other runs continue with files that tasks write.
    monkeypatch.setattr(table_file, "writes_bloom_filters", lambda: False)
    with pytest.raises(DataLossError, match=f"from commit log offset {int(segments[3].name)}"):
        lake.run(store, max_bytes=segments[0].stat().st_size)
    monkeypatch.undo()
    assert lake.committed_by_kernel() == set()
    assert lake.messages() == facts_of(A, int(segments[3].name))
    assert lake.end_if_nothing_is_new(store) is None

    # All segments are there.
    for file in hidden.iterdir():
        if file.is_file():
            shutil.copy(file, log)
    shutil.move(hidden / "consumequeue", store / "consumequeue")
    assert lake.end_if_nothing_is_new(store) is None
    report = lake.run(store)
    assert lake.messages() == facts_of(A)
    assert lake.keys() == keys_of(A)
    assert lake.end_if_nothing_is_new(store) == report.archived_to
    # Spark wrote the keys, also those of its own messages.
    assert lake.committed_by_kernel() == {"messages", "messages_segments", "messages_snapshots"}

    # Spark died between the commit of a batch and its own note of it; the batch is tried again.
    checkpoints = list((tmp_path / "lake" / "messages_checkpoints").glob("*-a-*/*/commits"))
    assert len(checkpoints) == 2
    for commits in checkpoints:
        last = max((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)
    assert lake.end_if_nothing_is_new(store) is None
    # Meanwhile segments that were archived expire.
    for file in segments[:3]:
        file.unlink()
    lake.run(store)

    # The checkpoints are lost.
    assert lake.end_if_nothing_is_new(store) == report.archived_to
    shutil.rmtree(tmp_path / "lake" / "messages_checkpoints")
    assert lake.end_if_nothing_is_new(store) is None
    assert lake.run(store).rows == 0
    assert lake.messages() == facts_of(A)
    assert lake.keys() == keys_of(A)


def test_damage_is_archived_and_counted_also_in_a_folder_with_a_space(
    delta: SparkSession, unpacked: Unpack, tmp_path: Path
) -> None:
    store, lake = STORES["crc-533"], Archive(delta, tmp_path / "a lake")
    folder = Path(shutil.copytree(unpacked(store), tmp_path / "store"))
    damaged = facts_of(store)[3][0]
    with (folder / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(damaged + 4)  # the magic number
        file.write(bytes(4))
    report = lake.run(folder)
    assert (report.rows, report.damaged_rows) == (len(facts_of(store)), 1)
    assert "  damaged         1 rows" in report.to_text()
    assert [row["commit_log_offset"] for row in lake.rows() if row["_corrupt_record"] is not None] == [damaged]
    assert lake.keys() == [key for key in keys_of(store) if key[3] != damaged]


def test_what_expired_before_it_was_archived_is_counted_if_the_run_is_told_to_continue(
    begun: Archive, tmp_path: Path
) -> None:
    store, lake = B.unpack(tmp_path), begun.copy(tmp_path / "lake")
    gone = segment_files(store)[:2]
    size = gone[1].stat().st_size
    for file in gone:
        file.unlink()
    assert lake.run(store, fail_on_data_loss=False).lost_bytes == size
    kept = [fact for fact in facts_of(B) if not int(gone[1].name) <= fact[0] < int(gone[1].name) + size]
    found = [row for row in lake.rows() if row["topic"] is not None]
    assert sorted((row["commit_log_offset"], digest(row["body"])) for row in found) == kept

    # The checkpoints are lost: the keys are deleted, and the files of keys are added again.
    keys = lake.keys()
    assert {offset for *_, offset in keys} < {offset for offset, _ in kept}
    shutil.rmtree(tmp_path / "lake" / "messages_checkpoints")
    assert lake.run(store, fail_on_data_loss=False).keys == len(keys)
    assert lake.keys() == keys
    assert lake.committed_by_kernel() == {"messages", "messages_keys", "messages_segments", "messages_snapshots"}


def host_bytes(text: str) -> bytes:
    address, port = text.rsplit(":", 1)
    return ipaddress.ip_address(address.strip("[]")).packed + int(port).to_bytes(4, "big")


def encoded(row: dict[str, Any]) -> bytes:
    """The record that a row of the archive is of."""
    record = Record(
        topic=row["topic"].encode(),
        queue_id=row["queue_id"],
        queue_offset=row["queue_offset"],
        commit_log_offset=row["commit_log_offset"],
        body=row["body"] if row["stored_body"] is None else row["stored_body"],
        properties=row["properties_bytes"],
        flag=row["flag"],
        sys_flag=row["sys_flag"],
        born_timestamp=millis(row, "born_timestamp"),
        born_host=host_bytes(row["born_host"]),
        store_timestamp=millis(row, "store_timestamp"),
        store_host=host_bytes(row["store_host"]),
        reconsume_times=row["reconsume_times"],
        prepared_transaction_offset=row["prepared_transaction_offset"],
        body_crc=row["body_crc"],
        magic=MAGIC_V1,
    )
    assert len(record.store_host) >= HOST_V4_SIZE
    if record.size == row["store_size"]:
        return record.encode()
    return Record(**{**vars(record), "magic": MAGIC_V2}).encode()


def millis(row: dict[str, Any], name: str) -> int:
    moment, number = row[name], row[f"{name}_millis"]
    assert (moment is None) != (number is None)
    return int(pa.scalar(moment).cast(pa.timestamp("ms", "UTC")).value) if number is None else int(number)


@pytest.mark.parametrize("broker", READ_ONLY)
def test_the_same_log_can_be_written_again(filled: Archive, broker: str, unpacked: Unpack) -> None:
    store = READ_ONLY[broker]
    folder = unpacked(store)
    (fact,) = store.facts("store")
    written = {}
    for segment in filled.rows("_segments", broker):
        content = bytearray(segment["file_size"])
        if segment["filler_offset"] is not None:
            at = segment["filler_offset"] - segment["commit_log_offset"]
            assert segment["filler_bytes"][: FRAME.size] == encode_blank(segment["file_size"] - at)[: FRAME.size]
            content[at : at + len(segment["filler_bytes"])] = segment["filler_bytes"]
        written[segment["commit_log_offset"]] = content
    for row in filled.rows(broker=broker):
        base = max(base for base in written if base <= row["commit_log_offset"])
        record = encoded(row)
        at = row["commit_log_offset"] - base
        written[base][at : at + len(record)] = record
    for file in segment_files(folder):
        base = int(file.name)
        live = max(min(fact["maxPhyOffset"] - base, file.stat().st_size), 0)
        assert bytes(written.get(base, b"")[:live]) == file.read_bytes()[:live]


def test_the_small_files_of_a_store_are_kept_for_each_run(filled: Archive, unpacked: Unpack) -> None:
    folder = unpacked(A)
    runs: dict[Any, dict[str, bytes]] = {}
    for row in filled.rows("_snapshots", "x"):
        runs.setdefault(row["snapshot_timestamp"], {})[row["file"]] = row["content"]
    files = [*(path for path in (folder / "config").rglob("*") if path.is_file()), folder / "checkpoint"]
    expected = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    facts = [{name: json.loads(run.pop(name)) for name in ("consumequeue", "index")} for run in runs.values()]
    assert list(runs.values()) == [expected, expected]
    assert facts[0] == facts[1]
    assert facts[0]["consumequeue"]["file_size"] == A.facts("store")[0]["mappedFileSizeConsumeQueue"]
    assert {(one["topic"], one["queue_id"]): one["max_offset"] for one in facts[0]["consumequeue"]["queues"]} == {
        (fact["topic"], fact["queueId"]): fact["max"] for fact in A.facts("queue")
    }
    assert [file["name"] for file in facts[0]["index"]["files"]] == sorted(path.name for path in folder.glob("index/*"))


def test_an_archive_has_the_same_facts_as_the_store(filled: Archive, unpacked: Unpack) -> None:
    tables = ArchiveTables.of(filled.table)
    chosen = choose_store(filled.spark, tables, None, "x", None)
    assert chosen.identity == StoreIdentity(DEFAULT_CLUSTER, "x", "s")
    of_store = facts_of_store(Location.resolve(str(unpacked(A))))
    of_archive = facts_of_archive(chosen)
    assert of_archive.tagged is not None  # a store's index shows it itself
    assert of_archive.tagged.ranges == ()
    assert replace(of_archive, tagged=None, name=of_store.name, location=of_store.location) == of_store
    with pytest.raises(OptionError, match=r"\d stores: choose one of them .*--broker x --store-name s; .*--broker y"):
        choose_store(filled.spark, tables, None, None, "s")
    with pytest.raises(OptionError, match=r"no store with broker w; it has .*--broker y"):
        choose_store(filled.spark, tables, None, "w", None)
    with pytest.raises(OptionError, match=r"other is neither a store directory nor an archive"):
        choose_store(filled.spark, ArchiveTables.of(f"{filled.table}/other"), None, None, None)


def test_a_table_of_an_older_version_gets_the_new_columns(lake: Archive) -> None:
    older = "cluster STRING, broker STRING, store STRING, commit_log_offset BIGINT, store_size INT, topic STRING, x INT"
    lake.spark.sql(f"CREATE TABLE delta.`{lake.table}` ({older}) USING DELTA")
    lake.spark.sql(f"INSERT INTO delta.`{lake.table}` VALUES ('DefaultCluster', 'z', 's', 0, 100, 'T', 5)")
    _create(lake.spark, ArchiveTables.of(lake.table).messages)
    ((old),) = lake.rows(broker="z")
    assert (old["x"], old["body"], old["topic"]) == (5, None, "T")
    assert {*old} == {*MESSAGES.columns().names, "x"}


def test_a_bloom_filter_spares_the_reading_of_unique_keys(filled: Archive) -> None:
    """Their range is that of every file; with many different ones Parquet's writer gives its dictionary up."""
    frame = filled.spark.read.format("delta").load(filled.table)
    values = sorted(row[0] for row in frame.where("unique_key IS NOT NULL").select("unique_key").collect())
    for absent in (f"{values[len(values) // 3]}-", f"{values[len(values) // 2]}-"):
        assert absent not in values
        assert rows_scanned(frame.where(F.col("unique_key") == absent)) == 0
    filled.spark.conf.set("parquet.filter.bloom.enabled", "false")
    try:
        assert rows_scanned(frame.where(F.col("unique_key") == absent)) > 0
    finally:
        filled.spark.conf.unset("parquet.filter.bloom.enabled")


def rows_scanned(frame: DataFrame) -> int:
    """How many rows the scan of files gave, before the filter."""
    frame.collect()
    plans = [frame._jdf.queryExecution().executedPlan()]
    rows = 0
    while plans:
        plan = plans.pop()
        if plan.getClass().getSimpleName() in ("AdaptiveSparkPlanExec", "ResultQueryStageExec"):
            plans.append(plan.executedPlan() if "Adaptive" in plan.getClass().getSimpleName() else plan.plan())
        elif plan.getClass().getSimpleName() == "FileSourceScanExec":
            rows += plan.metrics().get("numOutputRows").get().value()
        else:
            plans += [plan.children().apply(index) for index in range(plan.children().size())]
    return rows


def test_look_ups_skip_files_once_they_are_clustered(filled: Archive, tmp_path: Path) -> None:
    lake = filled.copy(tmp_path / "lake")
    spark, table, topic = lake.spark, lake.table, "OrderEvents"
    key = next(fact["keys"].split()[0] for fact in A.facts("msg") if fact["topic"] == topic and fact["keys"])
    expected = sorted(
        (broker, fact["offset"])
        for broker, store in READ_ONLY.items()
        for fact in store.facts("msg")
        if fact["topic"] == topic and key in [*(fact["keys"] or "").split(), fact["uniqKey"]]
    )
    maintain(spark, table, file_size=16 << 10, dry_run=False)
    found = query_message(spark, table, topic, key)
    assert sorted((row.broker, row.commit_log_offset) for row in found.collect()) == expected
    for broker, store in READ_ONLY.items():
        assert lake.messages(broker) == facts_of(store)
    messages = spark.read.format("delta").load(table)
    keys = spark.read.format("delta").load(f"{table}_keys")
    assert 0 < len(messages.where(f"topic = '{topic}'").inputFiles()) < len(messages.inputFiles())
    one_key = keys.where(f"topic = '{topic}' AND key = '{key}'")
    assert 0 < len(one_key.inputFiles()) < len(keys.inputFiles())
    assert query_message(spark, table, topic, "no such key").count() == 0


def test_maintenance_is_a_dry_run_unless_told(lake: Archive, unpacked: Unpack) -> None:
    lake.run(unpacked(B))
    lake.run(unpacked(A), "x")  # its files are gone before the next run of the other store has read them
    before = {path: path.stat().st_size for path in lake.folder.rglob("*") if path.is_file()}
    dry = maintain(lake.spark, lake.table, keep_days=-1, vacuum_hours=0)  # a dry run by default
    assert {path: path.stat().st_size for path in lake.folder.rglob("*") if path.is_file()} == before
    assert lake.end_if_nothing_is_new(unpacked(A), "x") is not None
    real = maintain(lake.spark, lake.table, keep_days=-1, vacuum_hours=0, dry_run=False)
    assert lake.end_if_nothing_is_new(unpacked(A), "x") is None
    expired = {table.table: table.expired_rows for table in dry.tables}
    assert expired == {table.table: table.expired_rows for table in real.tables}
    assert expired[lake.table] == len(B.facts("msg")) + len(A.facts("msg"))
    assert lake.rows() == lake.rows("_keys") == []
    # What was deleted stays deleted, and what comes is archived.
    assert (lake.run(unpacked(B)).rows, lake.rows()) == (0, [])


def counts(lake: Archive) -> dict[str, dict[str, int]]:
    """Rows by broker and store, in each table."""
    found: dict[str, dict[str, int]] = {}
    for suffix in ("", "_keys", "_segments", "_snapshots"):
        rows = delta_rows(Path(f"{lake.table}{suffix}"))
        found[suffix] = Counter(f"{row['broker']}/{row['store']}" for row in rows)
    return found


def test_a_log_that_is_archived_under_another_name_is_refused(
    filled: Archive, tmp_path: Path, unpacked: Unpack
) -> None:
    """Also after its first segments expired, and the log of a replica elsewhere."""
    replica = A.unpack(tmp_path)
    for file in segment_files(replica)[:2]:
        file.unlink()
    tables, before = ArchiveTables.of(filled.table), counts(filled)

    def settle(folder: Path, broker: str, name: str = "s", rename: bool = False) -> None:
        identity = StoreIdentity(DEFAULT_CLUSTER, broker, name)
        settle_name(StoreArchive(filled.spark, tables, identity, Location.resolve(str(folder))), rename=rename)

    message = "as --cluster DefaultCluster --broker x --store-name s.*--rename"
    for folder, broker, name in ((unpacked(A), "X", "s"), (replica, "x", "/replica"), (replica, "slave", "s")):
        with pytest.raises(OptionError, match=message):
            settle(folder, broker, name)
    with pytest.raises(OptionError, match=message):
        filled.run(replica, "X")
    with pytest.raises(OptionError, match=r"y --store-name s is another log there, .*keep one of the names"):
        settle(replica, "y", rename=True)
    settle(replica, "x")
    settle(unpacked(B), "y")
    put(log_with(30, 30), tmp_path / "another")
    settle(tmp_path / "another", "X")  # another broker's log, whatever its name is
    assert counts(filled) == before


class Killed(BaseException):
    """Ends a run between two of its steps."""


def test_a_log_gets_its_new_name_once_wherever_the_run_is_killed(
    begun: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, lake = B.unpack(tmp_path), begun.copy(tmp_path / "lake")
    begin = len(lake.messages())
    # It is killed when the other three tables have the new name.
    update, left = archived_log._update, 3

    def killed(*arguments: Any) -> int:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        return update(*arguments)

    monkeypatch.setattr(archived_log, "_update", killed)
    with pytest.raises(Killed):
        lake.run(store, "right", rename=True)
    monkeypatch.setattr(archived_log, "_update", update)
    assert (len(lake.messages()), lake.messages("right")) == (begin, [])
    report = lake.run(store, "right", rename=True)
    assert (report.renamed_messages, report.rows) == (begin, len(facts_of(B)) - begin)
    assert (lake.messages("right"), lake.keys("right")) == (facts_of(B), keys_of(B))
    assert {name.split("/")[0] for table in counts(lake).values() for name in table} == {"right"}


CUT_SEGMENT = 32 << 10


def log_with(count: int, kept: int) -> LogWriter:
    """A log of `count` messages with keys; those from `kept` on were written a minute later, with the same sizes."""
    log = LogWriter(CUT_SEGMENT)
    for number in range(count):
        late = 60_000 if number >= kept else 0
        body = bytes([1 + number % 7]) * (number * 37 % 600)
        keys = b"KEYS\x01k%04d\x02" % number
        log.append(1_795_000_000_000 + 10 * number + late, body, queue_id=number % 3, properties=keys)
    return log


def put(log: LogWriter, store: Path) -> list[tuple[int, int]]:
    """Make it the store's log; offset and store time of each message."""
    shutil.rmtree(store, ignore_errors=True)
    log.write(store)
    with MessageStore(str(store)) as opened:
        return [(offset, opened.records.store_timestamp(offset)) for offset in log.offsets]


def test_a_kill_while_a_stream_writes_its_first_offset_is_no_obstacle(lake: Archive, tmp_path: Path) -> None:
    first = put(log_with(30, 30), tmp_path / "store")
    tables = ArchiveTables.of(lake.table)
    for stream in ("messages", "keys"):
        offsets = Path(tables.checkpoint(StoreIdentity(DEFAULT_CLUSTER, "a", "s"), stream)) / "offsets"
        offsets.mkdir(parents=True)
        (offsets / ".0.12345678-1234-1234-1234-123456789abc.tmp").write_text("v1")
    assert lake.run(tmp_path / "store").rows == len(first)


def times(lake: Archive, store: str = "s") -> list[tuple[int, int]]:
    rows = [row for row in lake.rows() if row["store"] == store]
    return sorted((row["commit_log_offset"], millis(row, "store_timestamp")) for row in rows)


def key_offsets(lake: Archive, store: str = "s") -> list[int]:
    return sorted(row["commit_log_offset"] for row in lake.rows("_keys") if row["store"] == store)


def test_what_the_broker_lost_and_wrote_since_is_archived_beside_each_other(
    lake: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    first = put(log_with(200, 200), store)
    lake.run(store)
    archived = times(lake)
    assert archived == first

    # The log has the same length, and sizes; nothing is new by offsets.
    second = put(log_with(200, 150), store)
    with pytest.raises(LogCutError, match=f"50 archived messages, from commit log offset {first[150][0]} on"):
        lake.run(store)
    assert times(lake) == first
    if SOAKS:
        assert lake.run(store, fail_on_data_loss=False).lost_messages == 50
        assert (times(lake), key_offsets(lake)) == (second, [offset for offset, _ in second])
        lost = f"s#lost-{first[150][0]}-{first[199][1]}"
        assert (times(lake, lost), key_offsets(lake, lost)) == (first[150:], [offset for offset, _ in first[150:]])
        archived = second

    # The log ends before what was archived; the run is killed between two tables, and the checkpoints are lost.
    before = len(lake.rows())
    third = put(log_with(120, 60), store)
    update = archived_log._update
    monkeypatch.setattr(archived_log, "_update", lambda *arguments: (update(*arguments), exit_by(Killed))[0])
    with pytest.raises(Killed):
        lake.run(store, fail_on_data_loss=False)
    monkeypatch.setattr(archived_log, "_update", update)
    shutil.rmtree(lake.folder / "messages_checkpoints")
    assert lake.run(store, fail_on_data_loss=False).rows == 60
    assert (times(lake), key_offsets(lake)) == (third, [offset for offset, _ in third])
    lost = f"s#lost-{archived[60][0]}-{archived[199][1]}"
    assert (times(lake, lost), key_offsets(lake, lost)) == (archived[60:], [offset for offset, _ in archived[60:]])
    assert len(lake.rows()) == len(lake.rows("_keys")) == before + 60


def exit_by(error: type[BaseException]) -> int:
    raise error


def test_a_run_follows_the_store_over_a_lost_end_until_it_is_stopped(
    lake: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SNAPSHOT_SECONDS", 2.0)
    store = tmp_path / "store"

    def put_with_settings(log: LogWriter) -> list[tuple[int, int]]:
        times = put(log, store)
        (store / "config").mkdir()
        (store / "config" / "topics.json").write_text("{}")
        return times

    first = put_with_settings(log_with(100, 100))
    second: list[tuple[int, int]] = []
    batches: list[BatchProgress] = []
    deadline = time.monotonic() + 240

    def on_batch(batch: BatchProgress) -> None:
        batches.append(batch)
        if not second:
            second.extend(put_with_settings(log_with(130, 70)))

    def stop() -> bool:
        return time.monotonic() > deadline or sum(batch.rows for batch in batches) == len(first) + len(second) - 70

    report = lake.run(store, fail_on_data_loss=False, follow_seconds=0.5, stop=stop, on_batch=on_batch)
    assert report.lost_messages == 30
    assert batches[-1].archived_to == batches[-1].log_end == report.archived_to
    assert len({row["snapshot_timestamp"] for row in lake.rows("_snapshots")}) >= 2
    assert (times(lake), key_offsets(lake)) == (second, [offset for offset, _ in second])
    assert times(lake, f"s#lost-{first[70][0]}-{first[99][1]}") == first[70:]
