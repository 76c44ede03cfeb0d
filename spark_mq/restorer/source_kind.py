"""What the text that names a source is: a store directory, or the table of an archive."""

from __future__ import annotations

from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import COMMIT_LOG


def is_store(source: str) -> bool:
    """Whether a source is a store directory, and not the table of an archive.

    Example:
        >>> is_store("lake.messages")
        False
    """
    return (Location.resolve(source) / COMMIT_LOG).is_directory
