"""Names, listings, credentials and processes: what a store on S3 may be like, and its rows stay the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.errors import MissingPackageError, StorageError
from spark_mq.io import object_store
from tests.s3.proxy import Proxy
from tests.s3.server import ACCESS_KEY, SECRET_KEY
from tests.support.both_places import Place
from tests.support.in_process import read_rows
from tests.support.stores import OWN_STORES, RealStore

pytestmark = pytest.mark.s3


STALE = RealStore("stale-533", OWN_STORES)
FACT = next(fact for fact in STALE.facts("msg")[10:] if fact.get("keys"))
TOPIC, KEY = FACT["topic"], FACT["keys"].split()[0]
CONF = str(STALE.broker_conf)
_numbers = count()

FORKED = """
import os, sys
from spark_mq import MessageStore
from spark_mq.errors import StorageError

def look_up(store):
    found = store.query_message(*sys.argv[2:4])
    print(found["commit_log_offset"].to_pylist(), flush=True)

store = MessageStore(sys.argv[1], broker_conf=sys.argv[4])
look_up(store)
child = os.fork()
if not child:
    try:
        look_up(MessageStore(sys.argv[1], broker_conf=sys.argv[4]))
    except StorageError as error:
        print(error, flush=True)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def offsets(path: str) -> list[int]:
    """The commit log offsets that a look-up finds."""
    with MessageStore(path, broker_conf=CONF) as opened:
        return list(opened.query_message(TOPIC, KEY)["commit_log_offset"].to_pylist())


def listings(s3: Proxy) -> list[str]:
    """What the listings asked for: a prefix, with a slash at its end only if folders below it are not listed."""
    paths = [request.path for request in s3.requests if request.is_list]
    return [path.rpartition("prefix=")[2] + ("/" if "delimiter=" in path else "") for path in paths]


@pytest.fixture
def copied(on_s3: Place, s3: Proxy) -> tuple[Path, str]:
    """The folder of a store in a bucket, which a test may change, and its address."""
    name = f"changed-{next(_numbers)}"
    folder = s3.server.folder / "stores" / name
    shutil.copytree(on_s3(STALE)[0], folder)
    return folder, f"s3://stores/{name}"


def test_of_a_store_with_more_than_1000_files_the_root_and_one_folder_are_listed_too(
    copied: tuple[Path, str], s3: Proxy
) -> None:
    folder, remote = copied
    queue = next(file for file in (folder / "consumequeue").rglob("0*0") if file.is_file())
    for number in range(300):
        for queue_id in range(2):
            copy = folder / "consumequeue" / f"topic-{number:04d}" / str(queue_id) / queue.name
            copy.parent.mkdir(parents=True)
            os.link(queue, copy)
    expected = offsets(str(folder))
    s3.clear()
    assert offsets(remote) == expected
    assert expected
    root = remote.rpartition("/")[2]
    assert listings(s3) == [f"{root}%2F", f"{root}%2F/", f"{root}%2Findex%2F"]
    assert read_rows(path=remote, table="topics") == read_rows(path=str(folder), table="topics")


def test_an_empty_object_may_mark_a_folder_so_its_folder_is_listed_too(copied: tuple[Path, str], s3: Proxy) -> None:
    folder, remote = copied
    (folder / "config" / "empty").touch()
    assert offsets(remote) == offsets(str(folder))
    root = remote.rpartition("/")[2]
    assert listings(s3) == [f"{root}%2F", f"{root}%2Fconfig%2F/"]


@pytest.mark.parametrize("name", ["a%20b +é", "%RETRY%g|x"])
def test_a_store_is_read_whatever_its_name_is(name: str, on_s3: Place, s3: Proxy) -> None:
    folder = s3.server.folder / "stores" / name
    if not folder.exists():
        shutil.copytree(on_s3(STALE)[0], folder)
    assert offsets(f"s3://stores/{name}") == offsets(on_s3(STALE)[0])


@pytest.mark.parametrize(("version", "reason"), [("absent", "Python has no client for S3"), ("0.9.3", "is too old")])
def test_without_a_fitting_obstore_the_error_says_what_to_install(
    version: str, reason: str, on_s3: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    object_store._obstore.cache_clear()
    if version == "absent":
        monkeypatch.setitem(sys.modules, "obstore", None)
    else:
        monkeypatch.setattr("obstore.__version__", version)
    with pytest.raises(MissingPackageError, match=rf"{reason}: run pip install 'spark-mq\[s3\]'"):
        offsets(on_s3(STALE)[1])


def test_a_forked_process_gets_an_error_and_does_not_hang(on_s3: Place, s3: Proxy) -> None:
    """The threads of `obstore` exist only in the process that used it first."""
    command = [sys.executable, "-c", FORKED, on_s3(STALE)[1], TOPIC, KEY, CONF]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr
    found, error = answer.stdout.splitlines()
    assert found == str(offsets(on_s3(STALE)[0]))
    assert error.startswith("s3://stores: this process was forked after another one had used S3")


def test_keys_are_those_of_the_profile_if_nothing_else_has_any(
    on_s3: Place, s3: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").write_text(
        f"[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n"
        f"[broker]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "broker")
    # A setting that no other test has, so that no client is used again.
    assert offsets(f"{on_s3(STALE)[1]}?region=eu-west-1") == offsets(on_s3(STALE)[0])
    monkeypatch.setenv("AWS_PROFILE", "default")
    with pytest.raises(StorageError, match=r"the server denies the access: .*; check the credentials$"):
        offsets(f"{on_s3(STALE)[1]}?region=eu-west-3")


@pytest.mark.parametrize(
    ("settings", "endpoint"),
    [
        ("region=cn-north-1", "https://s3.cn-north-1.amazonaws.com.cn"),
        ("region=eu-west-1", None),
        ("region=eu-west-1&endpoint_override=h:1&scheme=http", "http://h:1"),
        ("endpoint_override=h:1&force_virtual_addressing=true", "https://stores.h:1"),
    ],
)
def test_the_endpoint_is_that_of_the_address_or_of_the_region(
    settings: str, endpoint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    store, _ = object_store.ObjectStore.of(f"s3://stores/x?access_key=a&secret_key=b&{settings}")
    assert store._client.config.get("endpoint") == endpoint
