"""Commands say of a store on S3 what they say of the same store on the local disk."""

from __future__ import annotations

from unittest import mock

import pytest

from spark_mq.cli.main import main
from spark_mq.io.location import Location
from spark_mq.store.disk_use import disk_use
from tests.s3.proxy import Fault, Proxy
from tests.s3.server import ACCESS_KEY, SECRET_KEY
from tests.support.both_places import Place, answer, questions
from tests.support.stores import WORKLOAD

pytestmark = pytest.mark.s3


FACT = next(fact for fact in WORKLOAD.facts("msg")[100:] if fact.get("keys"))


@pytest.mark.parametrize("words", questions(FACT, "no-such-key"), ids=lambda words: words[0])
def test_a_command_says_the_same(words: list[str], on_s3: Place, s3: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    answers = [answer(store, words, capsys) for store in on_s3(WORKLOAD)]
    assert answers[0] == answers[1]
    assert s3.requests


def test_files_are_counted_as_on_the_local_disk(on_s3: Place, s3: Proxy) -> None:
    """Also if the server lists folders as files, as this one does, and if the first listing ends in the middle."""
    s3.fault_of = lambda number, _method: Fault.CUT_BODY if number == 1 else None
    local, remote = (
        [(use.tree, use.files, use.size) for use in disk_use(Location.resolve(path))] for path in on_s3(WORKLOAD)
    )
    assert remote == local
    assert s3.faults == 1
    assert {tree for tree, files, size in remote if files and size} >= {"commitlog", "consumequeue", "index"}


def test_wrong_credentials_are_one_line_without_them(
    on_s3: Place, s3: Proxy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    assert main(["topics", on_s3(WORKLOAD)[1]]) == 1
    said = capsys.readouterr().err
    assert "the server denies the access" in said
    assert "403 Forbidden: SignatureDoesNotMatch: Forbidden; check the credentials" in said
    assert len(said.splitlines()) == 1
    assert s3.requests
    assert not any(hidden in said for hidden in (ACCESS_KEY, "another-secret", "<"))


def test_what_a_rebuild_would_do_shows_no_secret(on_s3: Place, s3: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    address = on_s3(WORKLOAD)[1].replace("s3://", f"s3://{ACCESS_KEY}:{SECRET_KEY}@")
    output = f"s3://stores/out?access_key={ACCESS_KEY}&secret_key={SECRET_KEY}"
    assert main(["rebuild", address, "--output", output, "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "s3://stores/out/consumequeue" in said.out
    assert not any(secret in said.out + said.err for secret in (ACCESS_KEY, SECRET_KEY))
    assert {request.method for request in s3.requests} == {"GET", "HEAD"}


@pytest.mark.parametrize(
    "words", [["expire", "{s3}", "--reserved-hours", "1"], ["restore", "{local}", "{s3}", "--append"]]
)
def test_what_changes_a_store_is_for_the_local_disk(
    words: list[str], on_s3: Place, s3: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    local, remote = on_s3(WORKLOAD)
    assert main([word.format(local=local, s3=remote) for word in words]) != 0
    assert "local" in capsys.readouterr().err
    assert not any(request.method in ("PUT", "DELETE", "POST") for request in s3.requests)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["archive", "{s3}", "{s3}/archive/messages"], "is in the folder of the store"),
        (["archive", "{local}", "s3://stores"], "'s3://stores' is a bucket: give a TABLE in it"),
        (["archive", "{local}", "{s3}"], "has files, but is not a Delta table"),
        (["maintain-archive", "s3://stores/no/archive"], "s3://stores/no/archive is not a Delta table"),
    ],
    ids=["in the store", "a bucket", "other files", "nothing"],
)
def test_tables_that_cannot_be_there_are_refused_before_spark_starts(
    words: list[str], message: str, on_s3: Place, s3: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    local, remote = on_s3(WORKLOAD)
    assert main([word.format(local=local, s3=remote) for word in words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert not any(request.method in ("PUT", "DELETE", "POST") for request in s3.requests)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["rebuild", "{s3}", "--output", "s3://no-bucket/x"], 1, "s3://no-bucket/x: its bucket does not exist"),
        (["restore", "{s3}", "s3://no-bucket/x"], 1, "s3://no-bucket/x: its bucket does not exist"),
        (["archive", "{local}", "s3://no-bucket/x"], 1, "s3://no-bucket/x: its bucket does not exist"),
        (["restore", "{s3}", "s3://stores"], 2, "s3://stores is a bucket: give a folder in it"),
        (["rebuild", "{s3}", "--output", "{s3}"], 1, "no tree can be renamed there: give another --output\n"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_outputs_that_cannot_be_there_are_refused_before_spark_starts(
    words: list[str],
    status: int,
    message: str,
    on_s3: Place,
    s3: Proxy,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = mock.Mock(side_effect=AssertionError("Spark starts"))
    monkeypatch.setattr("spark_mq.cli.spark.spark_session", start)
    local, remote = on_s3(WORKLOAD)
    assert main([word.format(local=local, s3=remote) for word in words]) == status
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1
    assert not any(request.method in ("PUT", "DELETE", "POST") for request in s3.requests)


def test_a_bucket_can_have_the_name_of_a_tree(on_s3: Place, s3: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    (s3.server.folder / "index").mkdir(exist_ok=True)
    assert main(["rebuild", on_s3(WORKLOAD)[1], "--output", "s3://index/x", "--dry-run"]) == 0
    assert "s3://index/x/consumequeue" in capsys.readouterr().out
