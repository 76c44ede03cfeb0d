"""Objects that `obstore` reads, and all that pyarrow must read instead: the rows are the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.io import s3_objects
from tests.s3.proxy import Proxy
from tests.support.in_process import read_rows
from tests.support.stores import OWN_STORES, RealStore

pytestmark = pytest.mark.s3

Place = Callable[[RealStore], tuple[str, str]]

STALE = RealStore("stale-533", OWN_STORES)
FACT = next(fact for fact in STALE.facts("msg")[10:] if fact.get("keys"))
TOPIC, KEY = FACT["topic"], FACT["keys"].split()[0]
CONF = str(STALE.broker_conf)
_numbers = count()

FORKED = """
import os, sys
from spark_mq import MessageStore

def look_up(store):
    found = store.query_message(*sys.argv[2:4])
    print(found["commit_log_offset"].to_pylist(), flush=True)

store = MessageStore(sys.argv[1], broker_conf=sys.argv[4])
look_up(store)
child = os.fork()
if not child:
    store.files.close()
    look_up(store)
    look_up(MessageStore(sys.argv[1], broker_conf=sys.argv[4]))
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


def test_an_empty_object_may_mark_a_folder_so_pyarrow_lists_the_store(copied: tuple[Path, str], s3: Proxy) -> None:
    folder, remote = copied
    (folder / "config" / "empty").touch()
    assert offsets(remote) == offsets(str(folder))
    assert len(listings(s3)) == 4


@pytest.mark.parametrize("name", ["a%20b +é", "%RETRY%g|x"])
def test_a_store_is_read_whatever_its_name_is(name: str, on_s3: Place, s3: Proxy) -> None:
    folder = s3.server.folder / "stores" / name
    if not folder.exists():
        shutil.copytree(on_s3(STALE)[0], folder)
    assert offsets(f"s3://stores/{name}") == offsets(on_s3(STALE)[0])


@pytest.mark.parametrize("version", ["absent", "0.9.3"])
def test_without_a_fitting_obstore_pyarrow_reads_the_same(
    version: str, on_s3: Place, s3: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version == "absent":
        monkeypatch.setitem(sys.modules, "obstore.store", None)
    else:
        monkeypatch.setattr("obstore.__version__", version)
    # A setting that no other test has, so that no client is used again.
    assert offsets(f"{on_s3(STALE)[1]}?region=eu-west-{len(version)}") == offsets(on_s3(STALE)[0])
    assert any(request.method == "HEAD" for request in s3.requests)


def test_a_forked_process_reads_the_same(on_s3: Place, s3: Proxy) -> None:
    """The threads of `obstore` exist only in the process that used it first."""
    command = [sys.executable, "-c", FORKED, on_s3(STALE)[1], TOPIC, KEY, CONF]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines() == [str(offsets(on_s3(STALE)[0]))] * 3
    heads = [request for request in s3.requests if request.method == "HEAD"]
    assert heads, "the forked process opens files with pyarrow"


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ("?endpoint_override=127.0.0.1:1", {}),
        ("?access_key=a&secret_key=b&endpoint_override=127.0.0.1:1&tls_ca_file_path=/ca", {}),
        ("?access_key=a&secret_key=b&endpoint_override=127.0.0.1:1", {"https_proxy": "http://127.0.0.1:1"}),
        ("?access_key=a&secret_key=b&region=cn-north-1", {}),
    ],
    ids=["credentials of the machine", "certificates", "proxy", "another domain"],
)
def test_pyarrow_reads_what_only_it_knows(
    settings: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    with_key = "?access_key=a&secret_key=b&endpoint_override=127.0.0.1:1"
    assert s3_objects.S3Objects.of(f"s3://stores/x{with_key}") is not None
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert s3_objects.S3Objects.of(f"s3://stores/x{settings}") is None


@pytest.mark.parametrize("key", ["a//b", "./a", "a/..", "a/", "", "a\x01", "/a"])
def test_a_key_that_obstore_refuses_is_left_to_pyarrow(key: str) -> None:
    objects = s3_objects.S3Objects.of("s3://stores/x?access_key=a&secret_key=b&endpoint_override=127.0.0.1:1")
    assert objects is not None
    assert objects.has("stores/a/%RETRY%g|x/.b/..c")
    assert not objects.has(f"stores/{key}")
    assert not objects.has("other/a")
