"""Fixtures of the tests that read from S3."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from tests.s3.proxy import Proxy
from tests.s3.server import ACCESS_KEY, LAKE, SECRET_KEY, S3Server, missing, running_server
from tests.support.stores import RealStore, Unpack

REGION = "eu-central-1"


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server."""
    reason = missing()
    if reason is not None:
        pytest.skip(f"no S3 server: {reason}")
    with running_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def _proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with Proxy(s3_server).running() as proxy:
        yield proxy


@pytest.fixture
def s3(_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """The proxy in front of the S3 server, without a request so far. The environment names it."""
    _proxy.reset()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{_proxy.endpoint}")
    monkeypatch.setenv("AWS_REGION", REGION)
    return _proxy


@pytest.fixture
def bucket(s3: Proxy) -> Path:
    """The folder of a bucket `made` without files."""
    folder = s3.server.folder / "made"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def lake(_proxy: Proxy) -> fs.FileSystem:
    """The server, on which the bucket `LAKE` exists."""
    server = fs.S3FileSystem(
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        endpoint_override=_proxy.endpoint,
        scheme="http",
        allow_bucket_creation=True,
    )
    server.create_dir(LAKE)
    return server


@pytest.fixture(scope="session")
def uploaded(s3_server: S3Server) -> Callable[[Path, str], str]:
    """Puts a folder into a bucket of the server; returns its URI."""

    def upload(folder: Path, name: str) -> str:
        target = s3_server.folder / "stores" / name
        if not target.exists():
            shutil.copytree(folder, target)
        return f"s3://stores/{name}"

    return upload


@pytest.fixture(scope="session")
def on_s3(unpacked: Unpack, uploaded: Callable[[Path, str], str]) -> Callable[[RealStore], tuple[str, str]]:
    """A store on the local disk and on S3: its path and its URI."""

    def place(store: RealStore) -> tuple[str, str]:
        folder = unpacked(store)
        return str(folder), uploaded(folder, str(store))

    return place
