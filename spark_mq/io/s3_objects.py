"""Objects of S3 that are read without asking for their sizes, and a listing of which only the first page is read.

pyarrow asks for the size of each file that it opens, also of a file that has just been listed; and it lists a folder
always to its end. `obstore` (the Python package of Rust's `object_store`) does neither. So it gets ranges of files of
known size, and lists small stores by one request. Everything else, and every address for which the two packages may
have different rules, is pyarrow's:

- credentials that are not in the address: only the clients of AWS know all the places where they can be,
- certificates in a file, a proxy for HTTP in the environment, Amazon's services outside the domain amazonaws.com,
- a process that was forked after `obstore` was used: its threads exist only in the first process,
- an installation without `obstore`, or with one before 0.10, which takes a `%` in a name for an escape.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self

from pyarrow import fs

from spark_mq.io.s3 import ATTEMPTS, CONNECT_SECONDS, REQUEST_SECONDS, flag, is_s3, settings_of

if TYPE_CHECKING:
    from obstore.store import S3Store

_PAGE: Final = 1000
"""The objects of one page of a listing, which is one request."""

_LEAST_VERSION: Final = (0, 10)
_PLAIN_KEY: Final = re.compile(r"(?:(?!\.{1,2}(?:/|$))[^/\x00-\x1f\x7f]+(?:/(?!$)|$))+")
"""Keys that `obstore` takes as they are: without empty names, `.`, `..` and control characters."""
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")
_OTHER_DOMAINS: Final = ("cn-", "us-iso", "eu-iso")
"""The starts of names of regions whose services are not below amazonaws.com."""
_EXPRESS: Final = "--x-s3"
"""The end of the name of a directory bucket, whose requests are signed in another way."""
_EMPTY_FILES: Final = ("abort", "abort.bak")
"""Files of a store that are empty. Any other empty object may be the mark of a folder, which pyarrow understands."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DENIED: Final = ("status code: 401", "status code: 403")
_NO_BUCKET: Final = "NoSuchBucket"
_ANSWER: Final = re.compile(r"<\?xml|<Error\b")
"""The begin of a server's answer in the text of an error."""
_CODE: Final = re.compile(r"<Code>([^<\n]*)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<\n]*)</Message>")

_process: int | None = None
"""The process that used `obstore` first."""


@dataclass(frozen=True)
class S3Page:
    """The first files of a listing, in its order, their ETags by path, and whether they are all files."""

    files: list[fs.FileInfo]
    etags: dict[str, str]
    is_whole: bool


@dataclass(frozen=True)
class S3Objects:
    """The objects of one bucket, for reading. Errors are `OSError`s, as those of a pyarrow filesystem."""

    bucket: str
    _store: S3Store

    @classmethod
    def of(cls, uri: str) -> Self | None:
        """The objects of the bucket of an address; None if pyarrow must read them."""
        if not is_s3(uri) or not _is_usable() or _has_proxy(os.environ):
            return None
        bucket, _, settings = settings_of(uri)
        has_credentials = "access_key" in settings or flag("anonymous", settings.get("anonymous", "false"))
        if not has_credentials or "tls_ca_file_path" in settings or bucket.endswith(_EXPRESS):
            return None
        if "endpoint_override" not in settings and settings["region"].startswith(_OTHER_DOMAINS):
            return None
        store = _s3_store(bucket, tuple(sorted(settings.items())))
        return None if store is None else cls(bucket, store)

    @property
    def is_usable(self) -> bool:
        """Whether this is the process that used `obstore` first: a forked one would wait for ever."""
        return _is_usable()

    def has(self, path: str) -> bool:
        """Whether the object at a path (bucket and key) can be read here: its key is taken as it is."""
        bucket, _, key = path.partition("/")
        return bucket == self.bucket and _PLAIN_KEY.fullmatch(key) is not None

    def read(self, path: str, position: int, length: int) -> bytes:
        """The `length` bytes of an object from `position` on; fewer if the object ends before.

        Raises:
            FileNotFoundError: There is no such object.
            OSError: The request failed.

        """
        import obstore

        key = path.removeprefix(f"{self.bucket}/")
        try:
            return bytes(obstore.get_range(self._store, key, start=position, length=length))
        except (obstore.exceptions.BaseError, OSError) as error:
            raise _os_error(error) from None

    def page(self, folder: str) -> S3Page | None:
        """The first page of the listing of a folder and of the folders below it.

        None if pyarrow must list the folder: a name is one that `obstore` refuses, or an object may mark a folder.

        Raises:
            OSError: The request failed.

        """
        import obstore

        prefix = folder.partition("/")[2]
        if prefix and not _PLAIN_KEY.fullmatch(prefix):
            return None
        try:
            objects = next(iter(obstore.list(self._store, prefix or None, chunk_size=_PAGE)), [])
        except obstore.exceptions.InvalidPathError:
            return None
        except (obstore.exceptions.BaseError, OSError) as error:
            raise _os_error(error) from None
        folders = {prefix, *(parent for one in objects for parent in _folders(one["path"]))}
        found = [one for one in objects if one["path"] not in folders]
        if any(one["size"] == 0 and one["path"].removeprefix(f"{prefix}/") not in _EMPTY_FILES for one in found):
            return None
        etags = {f"{self.bucket}/{one['path']}": one["e_tag"] for one in found if one["e_tag"]}
        return S3Page([_file_info(self.bucket, one) for one in found], etags, len(objects) < _PAGE)


def _is_usable() -> bool:
    return _process in (None, os.getpid())


def _has_proxy(environment: Mapping[str, str]) -> bool:
    return any(environment.get(name) or environment.get(name.upper()) for name in _PROXIES)


@cache
def _s3_store(bucket: str, settings: tuple[tuple[str, str], ...]) -> S3Store | None:
    """The client for a bucket, which all files share; None without a fitting `obstore`."""
    global _process
    try:
        import obstore
        from obstore.store import S3Store
    except ImportError:
        return None
    if tuple(map(int, obstore.__version__.split(".")[:2])) < _LEAST_VERSION:
        return None
    _process = os.getpid()
    values = dict(settings)
    is_anonymous = flag("anonymous", values.get("anonymous", "false"))
    credentials = {
        "access_key_id": values.get("access_key"),
        "secret_access_key": values.get("secret_key"),
        "token": values.get("session_token"),
        "expires_at": None,
    }
    # Not as arguments: a session token of the environment would be added to them.
    how: dict[str, Any] = {} if is_anonymous else {"credential_provider": lambda: credentials}
    host, scheme = values.get("endpoint_override"), values.get("scheme", "https")
    is_virtual = flag("force_virtual_addressing", values.get("force_virtual_addressing", "false"))
    if host is not None:
        how["endpoint"] = f"{scheme}://{bucket}.{host}" if is_virtual else f"{scheme}://{host}"
    if "region" in values:
        how["region"] = values["region"]
    return S3Store(
        bucket,
        **how,
        skip_signature=is_anonymous,
        virtual_hosted_style_request=is_virtual,
        client_options={
            "allow_http": scheme == "http",
            "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
            "timeout": timedelta(seconds=REQUEST_SECONDS),
        },
        retry_config={"max_retries": ATTEMPTS - 1},
    )


def _folders(path: str) -> list[str]:
    """The folders in which an object is, the nearest one first."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]


def _file_info(bucket: str, found: Any) -> fs.FileInfo:
    modified = (found["last_modified"] - _EPOCH) // timedelta(microseconds=1) * 1000
    return fs.FileInfo(f"{bucket}/{found['path']}", fs.FileType.File, size=found["size"], mtime_ns=modified)


def _os_error(error: Exception) -> OSError:
    """The error as pyarrow's filesystem of S3 would raise it, in one line.

    Of the server's answer only its code and its message are kept: Amazon's also has the access key.
    """
    text = str(error)
    reason = _ANSWER.split(text.partition("\n")[0])[0].rstrip(" :")
    said = [found[1] for found in (_CODE.search(text), _MESSAGE.search(text)) if found is not None]
    reason = ": ".join([reason, *said])
    if _NO_BUCKET in said:
        return OSError(f"NO_SUCH_BUCKET: {reason}")
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, reason)
    if any(code in reason for code in _DENIED):
        return PermissionError(errno.EACCES, reason)
    return OSError(reason)
