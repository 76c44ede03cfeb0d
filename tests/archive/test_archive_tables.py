"""Names of an archive's tables, and of a store's checkpoints. Without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity
from spark_mq.archive.last_run import KEYS_STREAM, MESSAGES_STREAM, Checkpoint
from spark_mq.errors import OptionError


@pytest.mark.parametrize("table", ["messages table", "", "a.b.c.d"])
def test_what_is_no_table_is_refused(table: str) -> None:
    with pytest.raises(OptionError, match="is not a table"):
        ArchiveTables.of(table)


def test_a_relative_path_becomes_absolute() -> None:
    assert ArchiveTables.of("./lake/messages/").name == str(Path.cwd() / "lake" / "messages")
    assert ArchiveTables.of("/lake/messages").messages.sql_name == "delta.`/lake/messages`"
    for uri in ("s3a://lake/messages", "file:/lake/messages", "dbfs:/lake/messages"):
        assert ArchiveTables.of(uri).name == uri


def test_spark_knows_a_table_on_s3_without_settings() -> None:
    place, identity = ArchiveTables.of("s3://me:secret@lake/messages/?region=eu"), StoreIdentity("c", "b", "s")
    assert place.keys.sql_name == "delta.`s3a://lake/messages_keys`"
    assert place.checkpoints == "s3a://lake/messages_checkpoints"
    assert "secret" not in repr(place)
    location = place.location(place.checkpoint(identity, "messages"))
    assert location.path == f"lake/messages_checkpoints/{identity.folder}/messages"
    assert "secret_key=secret" in location.uri
    elsewhere = ArchiveTables.of("s3n://lake/messages", "s3://other/checkpoints?region=us-east-1")
    assert elsewhere.checkpoints == "s3a://other/checkpoints"
    assert elsewhere.location(elsewhere.checkpoints).uri.endswith("region=us-east-1")
    with pytest.raises(OptionError, match="'s3://lake' is a bucket: give a TABLE in it"):
        ArchiveTables.of("s3://lake")


def test_a_table_of_the_catalog_needs_a_checkpoint() -> None:
    with pytest.raises(OptionError, match="--checkpoint"):
        ArchiveTables.of("lake.messages")
    place = ArchiveTables.of("lake.messages", "/lake/checkpoints")
    assert place.keys.sql_name == "`lake`.`messages_keys`"


def test_a_retired_checkpoint_is_not_used_again(tmp_path: Path) -> None:
    place, identity = ArchiveTables.of(str(tmp_path / "messages")), StoreIdentity("c", "b", "s")
    folders: list[str] = []
    for _ in range(3):
        checkpoint = Checkpoint(place, identity, MESSAGES_STREAM)
        folder = checkpoint.folder
        checkpoint.retire()
        # A stream that never noted an offset has none to be retired.
        assert checkpoint.folder == folder
        (Path(folder) / "offsets").mkdir(parents=True)
        (Path(folder) / "metadata").touch()
        assert not checkpoint.has_begun
        (Path(folder) / "offsets" / "0").touch()
        assert checkpoint.has_begun
        folders.append(folder)
        checkpoint.retire()
    assert len(set(folders)) == 3
    assert Checkpoint(place, identity, KEYS_STREAM).folder == place.checkpoint(identity, "keys")


def test_stores_do_not_share_checkpoints() -> None:
    place = ArchiveTables.of("/lake/messages")
    identities = [StoreIdentity("c", "a-b", "s"), StoreIdentity("c-a", "b", "s"), StoreIdentity("c", "a-b", "t")]
    assert len({place.checkpoint(identity, "messages") for identity in identities}) == 3
