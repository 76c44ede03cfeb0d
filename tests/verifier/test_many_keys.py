"""A message with more keys than an index file has entries fills several files, and each of them is sound."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.testing import LogWriter
from tests.support.kernels import examples
from tests.support.rebuilt import rebuild_here
from tests.support.verified import check


def store_of(folder: Path, counts: list[int], max_index_num: int) -> tuple[Path, Path]:
    """A store with a message for each number of keys, whose index was built, and its broker's settings."""
    writer = LogWriter(1 << 16)
    for number, count in enumerate(counts):
        keys = " ".join(f"m{number}k{index}" for index in range(count)).encode()
        properties = b"KEYS\1" + keys + b"\2UNIQ_KEY\1" + b"u%d" % number + b"\2"
        writer.append(1_600_000_000_000 + number * 1000, b"body", b"T", 0, number, properties)
    store, conf = folder / "store", folder / "broker.conf"
    writer.write(store)
    sizes = "mappedFileSizeConsumeQueue=400\nmappedFileSizeCommitLog=65536\n"
    conf.write_text(f"maxHashSlotNum=20\nmaxIndexNum={max_index_num}\n{sizes}")
    rebuild_here(store, broker_conf=str(conf))
    return store, conf


def test_a_message_with_200_keys(tmp_path: Path) -> None:
    store, conf = store_of(tmp_path, [3, 200, 1, 48, 49, 50, 98, 5], 50)
    assert len(list((store / "index").iterdir())) == 10
    assert [finding.code for finding in check(store, conf)[1] if finding.code.startswith("INDEX")] == []


@settings(max_examples=examples(20))
@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(3, 20))
def test_any_numbers_of_keys(counts: list[int], max_index_num: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, conf = store_of(Path(folder), counts, max_index_num)
        codes = {finding.code for finding in check(store, conf)[1]}
    assert not {code for code in codes if code.startswith("INDEX")}, codes
