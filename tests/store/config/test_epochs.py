"""The epochs of a replica in controller mode: bytes and answers are those of `EpochFileCache` of 5.3.3."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_mq.errors import ConfigError
from spark_mq.io.location import Location
from spark_mq.store import metadata_tables
from spark_mq.store.config.epochs import Epoch, EpochFile, consistent_offset
from spark_mq.store.message_store import MessageStore
from tests.support.stores import OWN_STORES, RealStore

WRITTEN = "3\n29073800\n1-0\n2-131072\n7-200000\n"
BACKUP = "2\n1122504752\n1-0\n2-131072\n"
"""What a broker left after it had appended epoch 7."""
EPOCHS = (Epoch(1, 0), Epoch(2, 131072), Epoch(7, 200000))


def epoch_file(folder: Path, content: str | None, backup: str | None = None) -> EpochFile:
    for name, text in (("epochFileCheckpoint", content), ("epochFileCheckpoint.bak", backup)):
        (folder / name).unlink(missing_ok=True)
        if text is not None:
            (folder / name).write_text(text)
    return EpochFile.of(Location.resolve(str(folder)))


def test_the_file_of_a_broker_and_its_backup(tmp_path: Path) -> None:
    assert epoch_file(tmp_path, None) == EpochFile()
    assert epoch_file(tmp_path, WRITTEN, BACKUP) == EpochFile(EPOCHS)
    assert epoch_file(tmp_path, WRITTEN.replace("29073800", "0")).epochs == EPOCHS
    assert epoch_file(tmp_path, "3\n1-0\n2-131072\n7-200000\n").epochs == EPOCHS  # without CRC, as 5.0.0 writes it
    found = epoch_file(tmp_path, WRITTEN.replace("29073800", "5"), BACKUP)
    assert (found.epochs, "CRC" in str(found.fault)) == (EPOCHS[:2], True)
    assert [(one, "the epochs are those of the .bak" in text) for one, text in found.problems(10**6)] == [
        (EPOCHS[0], True)
    ]


@pytest.mark.parametrize(
    "content",
    [
        *("", "x", "3", "3\n0\n1-0\n2-1310", "3\n0\n1-0\n2-13-2\n7-2000\n", "3\n0\n1-0\nx-13\n7-2000\n"),
        *(WRITTEN.replace("29073800", "29073801"), "1\n0\n99999999999-0\n", "1\n0\n1-9999999999999999999\n", "-1\n0\n"),
        *("9" * 5000, "1\n" + "9" * 5000 + "\n1-0\n"),
    ],
)
def test_what_a_broker_does_not_read_is_an_error_that_names_the_file(content: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="epochFileCheckpoint cannot be read: epochFileCheckpoint "):
        epoch_file(tmp_path, content)


def test_where_a_slave_cuts_its_log() -> None:
    others = (Epoch(1, 0), Epoch(2, 131072), Epoch(8, 180000))
    assert consistent_offset(EPOCHS, 210000, others, 190000) == 180000
    assert consistent_offset(others, 190000, EPOCHS, 210000) == 180000
    assert consistent_offset(EPOCHS, 210000, EPOCHS, 205000) == 205000
    assert consistent_offset(EPOCHS, 210000, (Epoch(1, 5),), 190000) is None
    assert consistent_offset((), 0, EPOCHS, 190000) is None


def test_the_table_names_what_does_not_fit_the_log(tmp_path: Path) -> None:
    store = RealStore("workload-533", OWN_STORES)
    path = store.unpack(tmp_path)
    (end,) = (fact["maxPhyOffset"] for fact in store.facts("store"))
    times = {fact["offset"]: fact["storeTimestamp"] for fact in store.facts("msg")}
    second = sorted(times)[len(times) // 2]
    epoch_file(path, f"4\n0\n1-0\n3-{second}\n2-{second + 9}\n5-{end + 1}\n")
    rows = metadata_tables.epochs(MessageStore(str(path))).to_pylist()
    assert [(row["epoch"], row["start_offset"], row["end_offset"]) for row in rows] == [
        *((1, 0, second), (3, second, second + 9), (2, second + 9, end + 1), (5, end + 1, None))
    ]
    assert rows[1]["first_store_timestamp"].timestamp() * 1000 == times[second]
    assert [row["problem"] for row in rows] == [
        *(None, None, f"epoch and start offset do not rise after 3-{second}"),
        f"the log ends at {end}, before the epoch",
    ]
