"""The errors of this package: one base class, `SparkMqError`, a subclass for each kind, and names that are nearest.

A caller can catch all of them as `SparkMqError`. Each subclass is also the matching builtin (`ValueError`,
`FileNotFoundError`, ...), so a caller that does not know this package catches them, too. A message names the file, the
offset or the option, and what to do.

No error is a `NotImplementedError`: Spark takes one from `DataSourceReader.partitions` for "this source has no
partitions", and the read then ends with no rows and without an error (`plan_data_source_read` of PySpark 4.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST_NAMES = 10


def similar_names(name: str, names: Iterable[str]) -> list[str]:
    """The names that are most similar to `name`, upper and lower case being equal; the most similar one first."""
    folded = {known.casefold(): known for known in sorted(names)}
    return [folded[match] for match in get_close_matches(name.casefold(), folded)]


def similar(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that names similar ones: `; similar: a, b`, or nothing if there is none."""
    found = similar_names(name, names)
    return f"; similar: {', '.join(found)}" if found else ""


def first_names(names: Iterable[str]) -> str:
    """The names, sorted, as text; of more than ten, the first ten and the number of the others."""
    known = sorted(names)
    rest = len(known) - _MOST_NAMES
    return ", ".join(known[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


class SparkMqError(Exception):
    """Base class of the errors of this package."""


class OptionError(SparkMqError, ValueError):
    """An option or argument is unknown, has an invalid value, or has no effect on what was requested."""


class FilterError(OptionError):
    """RocketMQ refuses a filter. `position` is where in its text, in characters from 0."""

    position: int = 0


class StoreNotFoundError(SparkMqError, FileNotFoundError):
    """The path is not a message store: it does not exist, or has no `commitlog` folder."""


class StoreChangedError(SparkMqError, RuntimeError):
    """A file of the store was removed, or became shorter, while the store was read."""


class DataLossError(StoreChangedError):
    """A part of the log is gone that a stream has not read yet: its segments expired, or the log lost its end."""


class LogCutError(DataLossError):
    """A part of the log that was read before is no longer in the log: the broker lost the end of its log."""


class ConfigError(SparkMqError, ValueError):
    """A file in `config/` and its `.bak` cannot be read."""


class UnsupportedStoreError(SparkMqError, RuntimeError):
    """The store is of a kind that this package cannot read, or is in a state in which it cannot be read."""


class UnfinishedAppendError(UnsupportedStoreError):
    """An append into the store was interrupted while its files were put in place, and has to be finished first."""


class UnfinishedRestoreError(UnsupportedStoreError):
    """A restore of the store was interrupted, or has not ended yet: some files are not in place."""


class UnsupportedSparkError(SparkMqError, RuntimeError):
    """The Spark version of the session lacks a feature that was requested."""


class EmptyStoreError(SparkMqError, ValueError):
    """The store contains no commit log record."""


class CorruptLogError(SparkMqError, ValueError):
    """Bytes of the commit log, or of a consume queue, break a rule of the format."""


class CorruptQueueError(CorruptLogError):
    """A unit of a consume queue does not lead to its message, and the answer depends on that unit."""


class CorruptIndexError(SparkMqError, ValueError):
    """Bytes of an index file break a rule of the format, or the file has other sizes than the broker's settings."""


class BodyError(SparkMqError, ValueError):
    """A message body cannot be decompressed, or is larger than the limit when it is decompressed."""


class InvalidMessageError(SparkMqError, ValueError):
    """Rows cannot become messages: a column is missing or unknown, or a value cannot be in a message."""


class UnsafeNameError(SparkMqError, ValueError):
    """A name in a store that, used as a path, would lead out of the store."""


class OutputExistsError(SparkMqError, FileExistsError):
    """The output already has the files that the job would write, and the job was not told to replace them."""


class OutputInUseError(SparkMqError, RuntimeError):
    """Another job is writing into the same output folder."""


class ArchiveInUseError(SparkMqError, RuntimeError):
    """Another run is archiving the same store into the same table."""


class NotSharedError(SparkMqError, OSError):
    """A task sees a different store or output than the driver under the same path, or nothing."""


class StorageError(SparkMqError, OSError):
    """A file or folder cannot be read or written: no permission, not a folder, or a filesystem that does not answer."""


class NoRoomError(StorageError):
    """A disk is full. The work of the job stays, so that `--resume` can continue it."""


class StoreLockedError(SparkMqError, RuntimeError):
    """The store's file `lock` is locked: a broker runs on the store, or another job writes into it."""


class MissingPackageError(SparkMqError, ImportError):
    """A Python package that a command needs is not installed."""


class SharedFilesNotFoundError(SparkMqError, FileNotFoundError):
    """The SQL files, job scripts or notebooks of this package were not installed with it."""


class SparkNotReachedError(SparkMqError, ConnectionError):
    """No Spark Connect server answers at the address that `SPARK_REMOTE` names."""


class PackagesNotFetchedError(SparkMqError, ConnectionError):
    """Spark cannot get a Maven package that its session needs."""


class RemotingError(SparkMqError, ConnectionError):
    """A broker or name server was not reached, did not answer in time, or answered with an error."""


class ProtocolError(RemotingError, ValueError):
    """Bytes of a broker or name server break a rule of the remoting protocol, or do not answer the request."""


class RefusedError(RemotingError):
    """A broker or name server refused a request. `code` is the code of its response."""

    code: int = 0
