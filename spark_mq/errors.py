"""Every error that this package raises on purpose.

One base class, so that a caller can catch them all, and each subclass is also the builtin that fits, so that
a caller who knows nothing of this package catches it too. A message names the file, the offset or the option,
and what to do.
"""

from __future__ import annotations


class SparkMqError(Exception):
    """Base of every error of this package."""


class OptionError(SparkMqError, ValueError):
    """An option or argument that is unknown, unreadable, or without effect here."""


class StoreNotFoundError(SparkMqError, FileNotFoundError):
    """The path is not a message store: nothing is there, or it has no `commitlog` folder."""


class StoreChangedError(SparkMqError, RuntimeError):
    """A file of the store went away, or became shorter, while the store was read."""


class DataLossError(StoreChangedError):
    """A part of the log that a stream has still to read is gone: its segments expired, or the log was cut."""


class LogCutError(DataLossError):
    """A part of the log that was read is no longer in it: the broker lost the end of its log."""


class ConfigError(SparkMqError, ValueError):
    """A file below `config/` that cannot be read, nor its `.bak`."""


class UnsupportedStoreError(SparkMqError, NotImplementedError):
    """A store of a kind that this package does not read, or not as it lies there."""


class UnsupportedSparkError(SparkMqError, NotImplementedError):
    """The session's Spark lacks what is asked for."""


class EmptyStoreError(SparkMqError, ValueError):
    """The store is one, but holds no commit log record to work on."""


class CorruptLogError(SparkMqError, ValueError):
    """Bytes of the commit log (or of a queue made from it) that break a rule of the format."""


class CorruptQueueError(CorruptLogError):
    """A unit of a consume queue that does not lead to its message, where the answer depends on it."""


class CorruptIndexError(SparkMqError, ValueError):
    """Bytes of an index file that break a rule of the format; or the file has other sizes than was said."""


class BodyError(SparkMqError, ValueError):
    """A message body that cannot be decompressed, or that grows beyond the limit."""


class UnsafeNameError(SparkMqError, ValueError):
    """A name inside a store that would lead outside of it when used as a path."""


class OutputExistsError(SparkMqError, FileExistsError):
    """The output already holds what the job would write, and the job was not told to replace it."""


class ArchiveInUseError(SparkMqError, RuntimeError):
    """Another run archives the same store into the same table at the moment."""


class NotSharedError(SparkMqError, OSError):
    """A task sees another store or output under a path than the driver does, or none."""


class StorageError(SparkMqError, OSError):
    """A file or folder that cannot be read or written: no permission, not a folder, or a filesystem without answer."""


class NoRoomError(StorageError):
    """A disk is full. What the job has written stays, so that `--resume` can continue with it."""


class StoreLockedError(SparkMqError, RuntimeError):
    """The store's `lock` is taken: a broker runs on the store, or another job writes into it."""


class MissingPackageError(SparkMqError, ImportError):
    """A Python package that a command needs is not installed."""


class SparkNotReachedError(SparkMqError, ConnectionError):
    """No Spark Connect server answers at the address that `SPARK_REMOTE` names."""
