"""Object stores as a home of infos, by `obstore` (the Python package of Rust's `object_store`): S3 and its like.

A path is that of a bucket and a key: `backups/broker-a/commitlog`. Objects have no folders: a folder is what is before
a slash in a key. Some programs mark a folder by an empty object with a slash at the end of its key. `obstore` leaves
that slash out, so what an empty object is, a listing of its folder tells.

Neither a file that was listed nor one of known size is asked for its size, and of a tree, the first 1000 files are one
request.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

from pyarrow import fs

from spark_mq.errors import MissingPackageError, StorageError
from spark_mq.io.s3 import DEFAULT_REGION, FLAGS, Settings, address, endpoint, is_set, parse, shown, with_settings
from spark_mq.io.storage import NetworkStorage, Page, StoredFile

if TYPE_CHECKING:
    from obstore.store import S3Store
    from typing_extensions import Buffer

_T = TypeVar("_T")

ATTEMPTS: Final = 5
"""How often the client sends a request that the server or the network fails."""
_CONNECT_TIME: Final = timedelta(seconds=10)
_REQUEST_TIME: Final = timedelta(seconds=60)
_PAGE: Final = 1000
"""The objects of one page of a listing, which is one request."""
_LEAST_VERSION: Final = (0, 10)
"""Versions before take a `%` in a name for an escape."""
_EXPRESS: Final = "--x-s3"
"""The end of the name of a directory bucket, whose requests are signed in another way."""
_OTHER_DOMAINS: Final = {"cn-": "amazonaws.com.cn", "us-iso-": "c2s.ic.gov", "us-isob-": "sc2s.sgov.gov"}
"""The domains of Amazon's services outside amazonaws.com, by the start of the region's name."""
_EMPTY_FILES: Final = ("abort", "abort.bak")
"""Files of a store that are empty. Any other empty object may be the mark of a folder."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DENIED: Final = ("status code: 401", "status code: 403")
_NO_BUCKET: Final = "NoSuchBucket"
_ANSWER: Final = re.compile(r"<\?xml|<Error\b")
"""The begin of a server's answer in the text of an error."""
_CODE: Final = re.compile(r"<Code>([^<\n]*)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<\n]*)</Message>")
_CERTIFICATES: Final = "SSL_CERT_FILE"
"""The variable of the environment that names the file of certificates, when a client is made."""
_DELTA_NAMES: Final = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}
_MIB: Final = 1 << 20
_PART_SIZES: Final = tuple(size * _MIB for size in (5, 8, 10, 15, 16, 25, 32, 50, 64, 100, 128, 200, 256))
"""The sizes of the parts of an upload, in clients that are not told another one."""
_MOST_HASHED: Final = 256 * _MIB
"""The most bytes that are hashed: more would take as long as to read some of the object."""
_ETAG: Final = re.compile(r'"?([0-9a-f]{32})(?:-([1-9][0-9]{0,4}))?"?')

_process: int | None = None
"""The process that used `obstore` first. Its threads exist only there: a forked process would wait for ever."""


@dataclass(frozen=True, repr=False)
class ObjectStore(NetworkStorage):
    """A bucket of S3. `settings` are those of its address (`spark_mq.io.s3`), which can be secrets."""

    what_to_check: ClassVar[str] = "the address, the region and the credentials"
    what_denies: ClassVar[str] = "the credentials"

    bucket: str
    settings: Settings

    @classmethod
    def of(cls, uri: str) -> tuple[Self, str]:
        """The bucket of an address, and the path of the file or folder."""
        bucket, path, settings = parse(with_settings(uri))
        return cls(bucket, tuple(sorted(settings.items()))), f"{bucket}{path}"

    def uri(self, path: str) -> str:
        return address(path, self.settings)

    @property
    def _client(self) -> S3Store:
        global _process
        _process = _process or os.getpid()
        if _process != os.getpid():
            raise StorageError(
                f"s3://{self.bucket}: this process was forked after another one had used S3, and the threads of the "
                "client exist only there: start processes with `spawn`, as multiprocessing.get_context does"
            )
        return _client(self.bucket, self.settings)

    @property
    def delta_options(self) -> dict[str, str]:
        """The settings by their names in the package `deltalake`."""
        values = dict(self.settings)
        options = {
            "AWS_REGION": _region(self.bucket, values),
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(is_set(values, "force_virtual_addressing")).lower(),
            "AWS_SKIP_SIGNATURE": str(is_set(values, "anonymous")).lower(),
        }
        options |= {name: values[ours] for ours, name in _DELTA_NAMES.items() if ours in values}
        service = endpoint(values, self.bucket)
        if service is not None:
            options["AWS_ENDPOINT_URL"] = service
            options["AWS_ALLOW_HTTP"] = str(service.startswith("http:")).lower()
        return options

    @property
    def arrow_files(self) -> fs.S3FileSystem:
        """The bucket as a filesystem whose files Arrow's own threads read, without Python."""
        values = dict(self.settings)
        flags = {name: is_set(values, name) for name in FLAGS}
        patience = {
            "connect_timeout": _CONNECT_TIME.total_seconds(),
            "request_timeout": _REQUEST_TIME.total_seconds(),
            "retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        }
        return fs.S3FileSystem(**{**values, **flags, **patience, "region": _region(self.bucket, values)})

    def info(self, path: str) -> fs.FileInfo:
        return self._request(path, lambda: self._info(path))

    def _info(self, path: str) -> fs.FileInfo:
        key = _key(path)
        try:
            found = _obstore().head(self._client, key) if key else None
        except FileNotFoundError:
            found = None
        if found is not None and found["size"]:
            return self._file_info(found)
        if next(iter(_obstore().list(self._client, key or None, chunk_size=1)), None) or not key:
            return fs.FileInfo(path, fs.FileType.Directory)
        return fs.FileInfo(path, fs.FileType.NotFound) if found is None else self._file_info(found)

    def check(self, path: str) -> None:
        try:
            with self._errors(path):
                self._info(self.bucket)
        except StorageError:
            raise
        except OSError:
            return

    def entries(self, path: str, recursive: bool = False) -> list[fs.FileInfo]:
        def listed() -> list[fs.FileInfo]:
            if recursive:
                return self._tree(
                    path, [one for some in _obstore().list(self._client, _key(path) or None) for one in some]
                )
            found = _obstore().list_with_delimiter(self._client, _key(path) or None)
            return self._infos(path, found["objects"], found["common_prefixes"])

        return self._request(path, listed)

    def first_page(self, path: str) -> Page | None:
        """The first 1000 files; None if the service does not list them in the order of their paths, and has more."""

        def page() -> Page | None:
            objects: list[Any] = next(iter(_obstore().list(self._client, _key(path) or None, chunk_size=_PAGE)), [])
            infos = self._tree(path, objects)
            paths = [one["path"] for one in objects]
            is_whole = len(objects) < _PAGE
            if not is_whole and paths != sorted(paths):
                return None
            etags = {f"{self.bucket}/{one['path']}": one["e_tag"] or "" for one in objects}
            return Page(
                infos,
                None if is_whole else f"{self.bucket}/{paths[-1]}",
                lambda file, size: tells_only_zeros(etags.get(file, ""), size),
            )

        return self._request(path, page)

    def _tree(self, path: str, objects: list[Any]) -> list[fs.FileInfo]:
        """The files and folders below a folder, of whose objects this is a listing."""
        key = _key(path)
        folders = {folder for one in objects for folder in _folders(one["path"]) if len(folder) > len(key)}
        known = folders | {key, *(f"{key}/{name}" for name in _EMPTY_FILES)}
        unclear = [one["path"] for one in objects if not one["size"] and one["path"] not in known]
        for parent in {key.rpartition("/")[0] for key in unclear}:
            folders.update(_obstore().list_with_delimiter(self._client, parent or None)["common_prefixes"])
        return self._infos(path, objects, folders)

    def _infos(self, path: str, objects: Iterable[Any], folders: Iterable[str]) -> list[fs.FileInfo]:
        """The entries of a listing. Some servers also list a folder as a file of the same name."""
        names = {*folders}
        hidden = names | {_key(path)}
        infos = [fs.FileInfo(f"{self.bucket}/{folder}", fs.FileType.Directory) for folder in names]
        infos += [self._file_info(one) for one in objects if one["path"] not in hidden]
        return sorted(infos, key=lambda info: info.base_name)

    def _file_info(self, found: Any) -> fs.FileInfo:
        modified = (found["last_modified"] - _EPOCH) // timedelta(microseconds=1) * 1000
        return fs.FileInfo(f"{self.bucket}/{found['path']}", fs.FileType.File, size=found["size"], mtime_ns=modified)

    def open(self, path: str, size: int | None = None) -> StoredFile:
        """An object, for reading; the server is asked for its size only if that is not known."""
        if size is None:
            info = self.info(path)
            if info.type != fs.FileType.File:
                raise FileNotFoundError(errno.ENOENT, f"there is no such object: {shown(self.uri(path))}")
            size = info.size
        return _Object(self, path, size)

    def read(self, path: str, position: int, length: int) -> bytes:
        """The `length` bytes of an object from `position` on; fewer if it ends before. Raises `OSError`."""
        with self._errors(path):
            return bytes(_obstore().get_range(self._client, _key(path), start=position, length=length))

    def write(self, path: str, content: Buffer) -> None:
        """Write an object, by one request, or in parts if it is large. It appears as a whole."""
        self._request(path, lambda: _obstore().put(self._client, _key(path), memoryview(content)), "written")

    def make_folder(self, path: str) -> None:
        """Nothing: there are only objects."""

    def rename(self, source: str, target: str) -> None:
        """Give a file another name: it is copied, and then removed."""
        self.copy(source, target)
        self.delete(source)

    def copy(self, source: str, target: str) -> None:
        """Copy an object; the server does it."""
        self._request(target, lambda: _obstore().copy(self._client, _key(source), _key(target)), "written")

    def delete(self, path: str) -> None:
        self._request(path, lambda: _obstore().delete(self._client, _key(path)), "removed")

    def delete_folder(self, path: str) -> None:
        keys = [_key(info.path) for info in self.entries(path, recursive=True) if info.type == fs.FileType.File]
        if keys:
            self._request(path, lambda: _obstore().delete(self._client, keys), "removed")

    def _request(self, path: str, request: Callable[[], _T], done: str = "read") -> _T:
        def sent() -> _T:
            with self._errors(path):
                return request()

        return self.asked(path, sent, done)

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        """A context in which errors of the client become those of `NetworkStorage.asked`."""
        obstore = _obstore()
        try:
            yield
        except StorageError:
            raise
        except obstore.exceptions.InvalidPathError as error:
            raise StorageError(
                f"{shown(self.uri(path))}: the bucket has an object whose name its clients cannot use: "
                f"{_first_line(error)}; move it away"
            ) from None
        except (obstore.exceptions.BaseError, OSError, ValueError) as error:
            raise self._error(path, error) from None

    def _error(self, path: str, error: Exception) -> OSError | StorageError:
        """The error in one line. Of the server's answer only code and message are kept: it can have the access key."""
        text = str(error)
        said = [found[1] for found in (_CODE.search(text), _MESSAGE.search(text)) if found is not None]
        if _NO_BUCKET in said:
            return StorageError(
                f"{shown(self.uri(path))}: its bucket does not exist; create the bucket, or check its name"
            )
        reason = ": ".join([_ANSWER.split(_first_line(error))[0].rstrip(" :"), *said])
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(errno.ENOENT, reason)
        if any(code in reason for code in _DENIED):
            return PermissionError(errno.EACCES, reason)
        return OSError(reason)

    def __repr__(self) -> str:
        return f"ObjectStore({self.bucket!r})"


@dataclass(frozen=True)
class _Object:
    store: ObjectStore
    path: str
    size: int

    def read(self, position: int, length: int) -> bytes:
        return self.store.read(self.path, position, length)


@cache
def _obstore() -> Any:
    """The client's module. Raises `MissingPackageError` if there is none, or not one that fits."""
    remedy = "run pip install 'spark-mq[s3]', on every machine of a cluster"
    try:
        import obstore
    except ImportError:
        raise MissingPackageError(f"Python has no client for S3: {remedy}") from None
    if tuple(map(int, obstore.__version__.split(".")[:2])) < _LEAST_VERSION:
        raise MissingPackageError(f"obstore {obstore.__version__} is too old: {remedy}")
    return obstore


@cache
def _client(bucket: str, settings: Settings) -> S3Store:
    """The client for a bucket, which all files share."""
    from obstore.store import S3Store

    values = dict(settings)
    is_anonymous, region = is_set(values, "anonymous"), _region(bucket, values)
    how: dict[str, Any] = {} if is_anonymous else _credentials(values)
    domain = next((name for start, name in _OTHER_DOMAINS.items() if region.startswith(start)), None)
    if domain is not None:
        values.setdefault("endpoint_override", f"s3.{region}.{domain}")
    service = endpoint(values, bucket)
    if service is not None:
        how["endpoint"] = service
    with _certificates(values.get("tls_ca_file_path")):
        return S3Store(
            bucket,
            **how,
            region=region,
            skip_signature=is_anonymous,
            virtual_hosted_style_request=is_set(values, "force_virtual_addressing"),
            s3_express=bucket.endswith(_EXPRESS),
            client_options={
                "allow_http": values.get("scheme") == "http",
                "connect_timeout": _CONNECT_TIME,
                "timeout": _REQUEST_TIME,
            },
            retry_config={"max_retries": ATTEMPTS - 1},
        )


def _region(bucket: str, settings: Mapping[str, str]) -> str:
    return settings.get("region") or (DEFAULT_REGION if "endpoint_override" in settings else _region_of(bucket))


@cache
def _region_of(bucket: str) -> str:
    """The region of one of Amazon's buckets. A process asks once."""
    return str(fs.resolve_s3_region(bucket))


def _credentials(settings: dict[str, str]) -> dict[str, Any]:
    """Where the client gets its credentials from: the settings, else `~/.aws`, else the role of the machine.

    With `boto3`, all places are known that the tools of AWS know, such as a single sign-on.
    """
    if "access_key" not in settings:
        with suppress(ImportError):
            from obstore.auth.boto3 import Boto3CredentialProvider

            return {"credential_provider": Boto3CredentialProvider()}
        from configparser import ConfigParser

        profile = os.environ.get("AWS_PROFILE", "default")
        file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", os.path.expanduser("~/.aws/credentials"))
        parser = ConfigParser(interpolation=None)
        parser.read(file)
        if not parser.has_option(profile, "aws_access_key_id"):
            return {}
        given = parser[profile]
        settings = {ours: given[name.lower()] for ours, name in _DELTA_NAMES.items() if name.lower() in given}
    credentials = {
        "access_key_id": settings["access_key"],
        "secret_access_key": settings["secret_key"],
        "token": settings.get("session_token"),
        "expires_at": None,
    }
    # Not as arguments: a session token of the environment would be added to them.
    return {"credential_provider": lambda: credentials}


@contextmanager
def _certificates(file: str | None) -> Iterator[None]:
    """A context in which a client that is made trusts the certificates of a file, instead of the machine's."""
    before = os.environ.get(_CERTIFICATES)
    if file is not None:
        os.environ[_CERTIFICATES] = file
    try:
        yield
    finally:
        if file is not None:
            del os.environ[_CERTIFICATES]
            os.environ.update({} if before is None else {_CERTIFICATES: before})


def _key(path: str) -> str:
    return path.partition("/")[2]


def _folders(key: str) -> Iterator[str]:
    """The folders in which an object is."""
    return (key[: found.start()] for found in re.finditer("/", key))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def tells_only_zeros(etag: str, size: int) -> bool:
    """Whether an object certainly has only zeros; False if its ETag does not tell.

    For most objects the ETag is the MD5 of the bytes. For an upload in parts it is the MD5 of the MD5s of the parts,
    and the number of parts. It is something else for some kinds of encryption, and then it tells nothing.
    """
    found = _ETAG.fullmatch(etag)
    if found is None:
        return False
    if found[2] is None:
        return size <= _MOST_HASHED and _of_zeros(size).hex() == found[1]
    count = int(found[2])
    return any(_of_parts(size, part) == found[1] for part in _PART_SIZES if -(-size // part) == count)


@cache
def _of_parts(size: int, part: int) -> str:
    """The hexadecimal digits of the ETag of zeros that are uploaded in parts."""
    whole, rest = divmod(size, part)
    digests = _of_zeros(part) * whole + (_of_zeros(rest) if rest else b"")
    return hashlib.md5(digests, usedforsecurity=False).hexdigest()


@cache
def _of_zeros(size: int) -> bytes:
    digest, block = hashlib.md5(usedforsecurity=False), bytes(min(size, _MIB))
    for _ in range(size // _MIB):
        digest.update(block)
    digest.update(bytes(size % _MIB))
    return digest.digest()
