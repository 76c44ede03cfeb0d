"""What the text that names a source is: a store directory, or the table of an archive."""

from __future__ import annotations

from collections.abc import Mapping

from spark_mq.errors import OptionError
from spark_mq.io.location import Location
from spark_mq.restorer.restore_request import RestoreRequest
from spark_mq.store.config.store_paths import COMMIT_LOG


def is_store(source: str) -> bool:
    """Whether a source is a store directory, and not the table of an archive."""
    return (Location.resolve(source) / COMMIT_LOG).is_directory


def check_source(source: str, request: RestoreRequest, names: Mapping[str, str | None]) -> None:
    """Raise `OptionError` if a request does not fit its source; nothing but the kind of the source is looked at.

    Args:
        source: A store directory, or the table of an archive.
        names: `cluster`, `broker` and `store_name` of the store in an archive.
    """
    given = [name for name, value in names.items() if value is not None]
    if given and is_store(source):
        option = f"--{given[0].replace('_', '-')}"
        raise OptionError(f"{option} has no effect: SOURCE {source} is a store, not an archive of several stores")
    if "/" in source or is_store(source):
        request.check_source(Location.resolve(source))
