"""Objects as files and folders: objects of a local folder, and listings as S3 words them. No server here."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spark_mq.errors import StorageError
from spark_mq.io import location, object_store, storage
from spark_mq.io.location import Location
from spark_mq.io.publish import publish, remove_folder
from tests.support.local_objects import local_objects

CERTIFICATES = Path(__file__).with_name("certificates")
TIME = datetime(2026, 1, 1, tzinfo=UTC)


def listed(path: str, size: int) -> dict[str, Any]:
    """An object of a listing."""
    return {"path": path, "size": size, "last_modified": TIME, "e_tag": None}


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Location:
    """A folder with the keys `p/`, `p/empty/`, `p/file`, `p/full/`, `p/full/x` and `p/zero`, as obstore lists them."""
    file, zero = listed("p/file", 1), listed("p/zero", 0)
    tree = [listed("p", 0), listed("p/empty", 0), file, listed("p/full", 0), listed("p/full/x", 3), zero]

    def flat(_client: object, prefix: str | None, chunk_size: int = 50) -> Iterator[list[dict[str, Any]]]:
        assert prefix == "p"
        yield tree

    def with_folders(_client: object, prefix: str | None) -> dict[str, Any]:
        assert prefix == "p"
        return {"common_prefixes": ["p/empty", "p/full"], "objects": [tree[0], file, zero]}

    monkeypatch.setattr("obstore.list", flat)
    monkeypatch.setattr("obstore.list_with_delimiter", with_folders)
    return Location.resolve("s3://b/p?region=eu-west-1&anonymous=true")


@pytest.mark.parametrize("is_snapshot", [False, True])
def test_an_empty_object_with_a_slash_at_its_end_is_a_folder(is_snapshot: bool, marked: Location) -> None:
    folder = marked.snapshot() if is_snapshot else marked
    names = [(info.base_name, info.is_file) for info in folder.entries()]
    assert names == [("empty", False), ("file", True), ("full", False), ("zero", True)]
    assert folder.files_below() == {"file": 1, "full/x": 3, "zero": 0}


def test_a_folder_is_what_is_before_a_slash(tmp_path: Path) -> None:
    publish(local_objects(tmp_path, "store/config/a"), b"a", 1)
    publish(local_objects(tmp_path, "store/abort"), b"", 0)
    store = local_objects(tmp_path, "store")
    assert [(store / name).is_directory for name in ("config", "config/a", "abort", "con", "none")] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert (store / "abort").is_file
    assert store.folders() == ["config"]
    assert store.files_below() == {"abort": 0, "config/a": 1}
    remove_folder(store / "config")
    assert store.files_below() == {"abort": 0}
    remove_folder(store / "config")


def test_a_large_file_is_assembled_in_a_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "_MAX_IN_MEMORY", 4)
    with local_objects(tmp_path, "a").open_output() as stream:
        for part in (b"012", b"345", b"6789"):
            stream.write(part)
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_files_are_streams_copies_and_other_names(tmp_path: Path) -> None:
    file = local_objects(tmp_path, "a")
    with file.open_output() as stream:
        stream.write(b"0123456789")
    with file.open_input() as stream:
        assert stream.size() == 10
        assert (stream.read(4), stream.tell(), stream.read_at(3, 8)) == (b"0123", 4, b"89")
    with local_objects(tmp_path, "empty").open_output():
        pass
    file.copy_to(local_objects(tmp_path, "b"))
    file.storage.rename(file.path, local_objects(tmp_path, "c").path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "c", "empty"]
    assert (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes() == b"0123456789"
    assert not file.renames
    assert not file.locks


class Server(BaseHTTPRequestHandler):
    """Has one object of two bytes."""

    def do_GET(self) -> None:
        self.send_response(206)
        for name, value in (("Content-Length", "2"), ("Content-Range", "bytes 0-1/2"), ("ETag", '"x"')):
            self.send_header(name, value)
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(b"ab")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def https() -> Iterator[str]:
    """The address of an object on a server whose certificate only `authority.pem` confirms."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATES / "server.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield f"s3://b/p?anonymous=true&endpoint_override=127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_certificates_are_those_of_the_file(https: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_WAITS", ())
    monkeypatch.setattr(object_store, "ATTEMPTS", 1)
    before = os.environ.get("SSL_CERT_FILE")
    trusting = Location.resolve(f"{https}&tls_ca_file_path={CERTIFICATES / 'authority.pem'}")
    assert trusting.open_remote(2).read(0, 2) == b"ab"
    assert os.environ.get("SSL_CERT_FILE") == before
    with pytest.raises(StorageError, match=r"cannot be read, .*; check the address"):
        Location.resolve(https).open_remote(2).read(0, 2)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "access_key=a&secret_key=b&session_token=c&endpoint_override=h:1&scheme=http",
            {
                "AWS_ACCESS_KEY_ID": "a",
                "AWS_SECRET_ACCESS_KEY": "b",
                "AWS_SESSION_TOKEN": "c",
                "AWS_ENDPOINT_URL": "http://h:1",
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
                "AWS_SKIP_SIGNATURE": "false",
                "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
            },
        ),
        (
            "anonymous=true&region=eu&endpoint_override=h&force_virtual_addressing=true",
            {
                "AWS_ENDPOINT_URL": "https://lake.h",
                "AWS_ALLOW_HTTP": "false",
                "AWS_REGION": "eu",
                "AWS_SKIP_SIGNATURE": "true",
                "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
            },
        ),
    ],
)
def test_deltalake_and_arrow_get_the_settings_of_the_address(
    query: str, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    bucket, path = object_store.ObjectStore.of(f"s3://lake/messages?{query}")
    assert (path, bucket.delta_options) == ("lake/messages", expected)
    assert bucket.arrow_files.region == expected["AWS_REGION"]
