"""A request to restore a store. It is checked without Spark: a wrong argument must not wait until a JVM has started."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Self

from spark_mq.errors import OptionError, OutputExistsError, StorageError, StoreLockedError
from spark_mq.io.location import Location
from spark_mq.restorer.host_text import parse_host
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.broker_version import BrokerVersion, parse_broker_version
from spark_mq.store.config.store_paths import COMMIT_LOG
from spark_mq.store.index.names import parse_time_zone
from spark_mq.store.log.segment_files import DEFAULT_SEGMENT_SIZE
from spark_mq.store.store_lock import is_locked

RESTORING = ".restoring"
"""The end of the name of the folder beside the new store in which a job works."""

MAP_SUFFIX = "_offsets"
"""The end of the name of the folder beside the new store that has the old and the new offsets."""


@dataclass(frozen=True)
class RestoreRequest:
    """What to restore, and how; see `spark_mq.restore` for the arguments.

    Attributes:
        store: The store that is made, or continued.
        is_append: Whether messages are appended to the store.
        replaces: Whether a store that exists is set aside under another name.
        is_renumbered: Whether messages get new offsets even if the source has offsets.
        where: The condition of the messages that are restored, as Spark SQL; None for all.
        only_delivered: Whether messages that wait in a broker's own topics are left out.
        store_host: The address that messages get as that of their broker; None to keep it.
        topics: New names of topics, by their old names.
        broker_conf: The settings of the broker of the new store.
        broker_version: That broker's version; None if the source shows it.
        time_zone: The zone of the names of index files; None if the source shows it.
        offset_map: The folder for the table of old and new offsets.

    """

    store: Location
    is_append: bool = False
    replaces: bool = False
    is_renumbered: bool = False
    where: str | None = None
    only_delivered: bool = False
    store_host: str | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    broker_conf: BrokerConf = field(default_factory=lambda: BrokerConf({}))
    broker_version: BrokerVersion | None = None
    time_zone: tzinfo | None = None
    offset_map: Location | None = None

    @classmethod
    def of(
        cls,
        store: str,
        *,
        where: str | None = None,
        renumber: bool = False,
        append: bool = False,
        replace: bool = False,
        only_delivered: bool = False,
        store_host: str | None = None,
        topic_map: Mapping[str, str] | None = None,
        broker_conf: str | None = None,
        broker_version: str | None = None,
        time_zone: str | None = None,
        offset_map: str | None = None,
    ) -> Self:
        """The request with these arguments.

        Raises:
            OptionError: An argument is not valid, or contradicts another one.
            OutputExistsError: The store exists, and is neither appended to nor replaced; or it is not a store.
            StoreLockedError: A broker runs on the store that is replaced.

        """
        location = Location.resolve(store)
        if not location.is_local:
            raise OptionError(f"{location} is not on a local filesystem: restore to a folder, and copy it from there")
        if topic_map and not (renumber or append):
            raise OptionError("--topic-map changes the sizes of messages, so they need new offsets: add --renumber")
        if store_host is not None:
            try:
                parse_host(store_host)
            except ValueError as error:
                raise OptionError(
                    f"--store-host {store_host}: {error}; give HOST:PORT, such as 10.0.0.7:10911"
                ) from error
        request = cls(
            location,
            append,
            replace,
            renumber or append,
            where,
            only_delivered,
            store_host,
            dict(topic_map or {}),
            BrokerConf.of(broker_conf),
            None if broker_version is None else parse_broker_version(broker_version),
            None if time_zone is None else parse_time_zone(time_zone),
            None if offset_map is None else Location.resolve(offset_map),
        )
        request.check_target()
        return request

    @property
    def work_folder(self) -> Location:
        """The folder beside the new store in which the job works: on the same filesystem, so that it can be renamed."""
        return self.store.parent / f"{self.store.name}{RESTORING}"

    @property
    def offset_map_folder(self) -> Location:
        """The folder for the table of old and new offsets."""
        return self.offset_map or self.store.parent / f"{self.store.name}{MAP_SUFFIX}"

    def check_target(self) -> None:
        """Raise an error if the new store cannot be put in its place; nothing is created or changed.

        Raises:
            OutputExistsError: The folder has files, and is not a store that is replaced.
            StoreLockedError: A broker runs on the store that is replaced.
            StorageError: The folder is a mount point.

        """
        if self.is_append:
            return
        if self.store.is_file:
            raise OutputExistsError(f"{self.store} is a file: give a new folder")
        if self.replaces and (self.store / COMMIT_LOG).is_directory:
            if is_locked(self.store):
                raise StoreLockedError(
                    f"{self.store}: a broker runs on this store, or another job writes into it: stop the broker first"
                )
        elif self.store.entries():
            raise OutputExistsError(
                f"{self.store} is not empty, and is not a message store: give another folder"
                if not (self.store / COMMIT_LOG).is_directory
                else f"{self.store} is not empty: give a new folder, or --append to append to the store that is there"
            )
        if os.path.ismount(self.store.path):
            raise StorageError(f"{self.store} is a mount point, which no folder can replace: give a folder in it")

    def with_settings(self, settings: Mapping[str, str]) -> Self:
        """The request with settings of the source, where the user gave none."""
        conf = dataclasses.replace(self.broker_conf, settings={**settings, **self.broker_conf.settings})
        return dataclasses.replace(self, broker_conf=conf)

    @property
    def segment_size(self) -> int:
        """Bytes of a segment."""
        return self.broker_conf.commit_log_file_size or DEFAULT_SEGMENT_SIZE
