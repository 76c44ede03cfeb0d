"""Errors of obstore become one line, which says what the server said, without the access key. No server here."""

from __future__ import annotations

import errno

import pytest

from spark_mq.errors import StorageError
from spark_mq.io.retry import repeated
from spark_mq.io.s3_objects import _os_error

REQUEST = "Generic S3 error: Error performing list request: Error performing GET https://s3.eu-west-1.amazonaws.com/b"


def answer(status: str, code: str, message: str, newline: str) -> Exception:
    """An error of obstore with a server's answer in it; Amazon's has a line break after its first tag."""
    return Exception(
        f"{REQUEST} in 4 ms - Server returned non-2xx status code: {status}: "
        f'<?xml version="1.0" encoding="UTF-8"?>{newline}<Error><Code>{code}</Code><Message>{message}</Message>'
        "<AWSAccessKeyId>AKIDSECRET</AWSAccessKeyId><StringToSign>AWS4 AKIDSECRET</StringToSign></Error>\n\n"
        "Debug source:\nAKIDSECRET"
    )


@pytest.mark.parametrize("newline", ["", "\n"], ids=["one line", "Amazon"])
def test_a_denied_access_is_one_line_without_the_access_key(newline: str) -> None:
    def deny() -> None:
        raise _os_error(answer("403 Forbidden", "SignatureDoesNotMatch", "The signature differs.", newline))

    with pytest.raises(StorageError) as caught:
        repeated("s3://b/p", deny)
    assert str(caught.value) == (
        f"s3://b/p: the server denies the access: [Errno {errno.EACCES}] {REQUEST} in 4 ms - Server returned non-2xx "
        "status code: 403 Forbidden: SignatureDoesNotMatch: The signature differs.; check the credentials"
    )


@pytest.mark.parametrize("newline", ["", "\n"], ids=["one line", "Amazon"])
def test_a_missing_bucket_is_asked_for_once(newline: str) -> None:
    requests = []

    def ask() -> None:
        requests.append(1)
        raise _os_error(answer("404 Not Found", "NoSuchBucket", "The bucket does not exist", newline))

    with pytest.raises(StorageError, match=r"^s3://b/p: its bucket does not exist"):
        repeated("s3://b/p", ask)
    assert len(requests) == 1


def test_an_error_without_an_answer_stays_as_it_is() -> None:
    error = _os_error(Exception(f"{REQUEST} after 4 retries - HTTP error: error sending request\n\nDebug source:\nx"))
    assert str(error) == f"{REQUEST} after 4 retries - HTTP error: error sending request"
    assert type(error) is OSError
    assert isinstance(_os_error(FileNotFoundError("Object at location x not found: <?xml ?>")), FileNotFoundError)
