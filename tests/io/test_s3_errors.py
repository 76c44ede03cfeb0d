"""Errors of obstore become one line, which says what the server said, without the access key. No server here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import obstore
import pytest

from spark_mq.errors import StorageError
from spark_mq.io import storage
from spark_mq.io.location import Location
from spark_mq.io.object_store import ObjectStore

REQUEST = "Generic S3 error: Error performing list request: Error performing GET https://s3.eu-west-1.amazonaws.com/b"


def answer(status: str, code: str, message: str, newline: str) -> Exception:
    """An error of obstore with a server's answer in it; Amazon's has a line break after its first tag."""
    return OSError(
        f"{REQUEST} in 4 ms - Server returned non-2xx status code: {status}: "
        f'<?xml version="1.0" encoding="UTF-8"?>{newline}<Error><Code>{code}</Code><Message>{message}</Message>'
        "<AWSAccessKeyId>AKIDSECRET</AWSAccessKeyId><StringToSign>AWS4 AKIDSECRET</StringToSign></Error>\n\n"
        "Debug source:\nAKIDSECRET"
    )


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], list[int]]:
    """Makes each read fail with an error; returns the list of the tries."""

    def fail_with(error: Exception) -> list[int]:
        tries: list[int] = []

        def get_range(*_: Any, **__: Any) -> bytes:
            tries.append(1)
            raise error

        monkeypatch.setattr("obstore.get_range", get_range)
        return tries

    monkeypatch.setattr(storage, "_WAITS", (0.0, 0.0))
    return fail_with


def read() -> bytes:
    """A read of a file of known size."""
    store, path = ObjectStore.of("s3://b/p?region=eu-west-1&anonymous=true")
    file = store.open(path, 10)
    return store.asked(path, lambda: file.read(0, 10))


@pytest.mark.parametrize("newline", ["", "\n"], ids=["one line", "Amazon"])
def test_a_denied_access_is_one_line_without_the_access_key(
    newline: str, failing: Callable[[Exception], list[int]]
) -> None:
    tries = failing(answer("403 Forbidden", "SignatureDoesNotMatch", "The signature differs.", newline))
    with pytest.raises(StorageError) as caught:
        read()
    assert str(caught.value) == (
        f"s3://b/p: the server denies the access: [Errno 13] {REQUEST} in 4 ms - Server returned non-2xx "
        "status code: 403 Forbidden: SignatureDoesNotMatch: The signature differs.; check the credentials"
    )
    assert len(tries) == 1


@pytest.mark.parametrize("newline", ["", "\n"], ids=["one line", "Amazon"])
def test_a_missing_bucket_is_asked_for_once(newline: str, failing: Callable[[Exception], list[int]]) -> None:
    tries = failing(answer("404 Not Found", "NoSuchBucket", "The bucket does not exist", newline))
    with pytest.raises(StorageError, match=r"^s3://b/p: its bucket does not exist; create the bucket"):
        read()
    assert len(tries) == 1


def test_another_error_is_tried_again_and_names_the_file(failing: Callable[[Exception], list[int]]) -> None:
    tries = failing(OSError(f"{REQUEST} after 4 retries - HTTP error: error sending request\n\nDebug source:\nx"))
    with pytest.raises(StorageError) as caught:
        read()
    assert str(caught.value) == (
        f"s3://b/p: cannot be read, also after 2 more tries: {REQUEST} after 4 retries - HTTP error: error sending "
        "request; check the address, the region and the credentials, or run again if the server was busy"
    )
    assert len(tries) == 3


def test_a_file_that_is_gone_is_told_by_its_own_error(failing: Callable[[Exception], list[int]]) -> None:
    failing(FileNotFoundError("Object at location x not found: <?xml ?>"))
    with pytest.raises(FileNotFoundError, match=r"Object at location x not found$"):
        read()


def test_a_name_that_no_client_takes_is_an_error_that_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise obstore.exceptions.InvalidPathError('Encountered object with invalid path: Path "a//b" contained\nDebug')

    monkeypatch.setattr("obstore.list", refuse)
    with pytest.raises(StorageError, match=r'^s3://b/p: the bucket has .*: Path "a//b" contained; move it away'):
        Location.resolve("s3://b/p?region=eu-west-1&anonymous=true").files_below()
