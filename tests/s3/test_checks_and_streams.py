"""A check and a stream of a store on S3, without Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_mq.source.message_stream import MessagesStreamReader
from spark_mq.source.options import parse_stream_options
from spark_mq.verifier.finding import Finding
from tests.s3.proxy import Fault, Proxy
from tests.support.both_places import STREAM_COLUMNS, Place, batches, stream_of
from tests.support.in_process import read_rows
from tests.support.stores import WORKLOAD, Unpack
from tests.support.verified import check

pytestmark = pytest.mark.s3


@pytest.fixture(scope="session")
def damaged(
    unpacked: Unpack, uploaded: Callable[[Path, str], str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    """A store with damage in its log, a queue and an index file: its path and its URI."""
    folder = shutil.copytree(unpacked(WORKLOAD), tmp_path_factory.mktemp("damaged") / "store")
    for tree, position in (("commitlog", 4), ("consumequeue", 24), ("index", 45)):
        file = next(path for path in sorted((folder / tree).rglob("*0*")) if path.is_file())
        content = bytearray(file.read_bytes())
        content[position] ^= 0x41
        file.write_bytes(content)
    return str(folder), uploaded(folder, "damaged")


def in_order(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=repr)


def test_a_check_finds_what_it_finds_on_the_local_disk(damaged: tuple[str, str], s3: Proxy) -> None:
    here, there = damaged
    expected = in_order(check(here, WORKLOAD.broker_conf)[1])
    assert len({finding.code for finding in expected}) >= 3
    assert in_order(check(there, WORKLOAD.broker_conf)[1]) == expected
    s3.fault_of = lambda number, _method: Fault.INTERNAL_ERROR if number % 20 == 0 else None
    assert in_order(check(there, WORKLOAD.broker_conf, 64 << 10)[1]) == expected


def test_damaged_bytes_give_the_rows_of_the_local_disk(damaged: tuple[str, str], s3: Proxy) -> None:
    here, there = damaged
    rows = read_rows(path=there)
    assert rows == read_rows(path=here)
    assert any(row["_corrupt_record"] for row in rows)


def test_a_stream_has_the_batches_of_the_local_disk(on_s3: Place, s3: Proxy) -> None:
    here, there = on_s3(WORKLOAD)
    expected = list(batches(stream_of(here)))
    assert len(expected) > 2
    s3.fault_of = lambda number, _method: Fault.CUT_BODY if number % 20 == 0 else None
    assert list(batches(stream_of(there))) == expected


def test_a_segment_that_expires_before_it_is_read_is_lost_as_on_the_local_disk(on_s3: Place, s3: Proxy) -> None:
    here, _ = on_s3(WORKLOAD)
    (s3.server.folder / "expiring").mkdir(exist_ok=True)
    stores = []
    for folder in (s3.server.folder / "expiring" / "here", s3.server.folder / "expiring" / "there"):
        shutil.copytree(here, folder)
        uri = str(folder) if folder.name == "here" else "s3://expiring/there"
        stream = MessagesStreamReader(parse_stream_options({"path": uri, "failOnDataLoss": "false"}), STREAM_COLUMNS)
        start: Mapping[str, Any] = stream.initialOffset()
        partitions = stream.partitions(start, stream.latestOffset(start, stream.getDefaultReadLimit()))
        min((folder / "commitlog").iterdir()).unlink()
        rows = pa.Table.from_batches([part for one in partitions for part in stream.read(one)]).to_pylist()
        stores.append(json.loads(json.dumps(rows, default=repr).replace(uri, "STORE")))
    assert stores[1] == stores[0]
    assert any("expired" in (row["_corrupt_record"] or "") for row in stores[0])


def test_a_store_that_is_uploaded_again_gives_the_new_messages(on_s3: Place, s3: Proxy) -> None:
    here, _ = on_s3(WORKLOAD)
    bucket = s3.server.folder / "growing"
    shutil.rmtree(bucket, ignore_errors=True)
    (bucket / "store" / "commitlog").mkdir(parents=True)
    first, *others = sorted((Path(here) / "commitlog").iterdir())
    shutil.copy(first, bucket / "store" / "commitlog")
    stream = stream_of("s3://growing/store")
    rows = [row for batch in batches(stream) for row in batch]
    assert rows
    for segment in others:
        shutil.copy(segment, bucket / "store" / "commitlog")
    start = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    assert start != stream.initialOffset()
    again = [row for batch in batches(stream_of("s3://growing/store")) for row in batch]
    assert again == [row for batch in batches(stream_of(here)) for row in batch]
    assert again[: len(rows)] == rows
