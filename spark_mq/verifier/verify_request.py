"""A request for a check. It is checked without Spark: a wrong argument must not wait until a JVM has started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_kind import Door, check_form
from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE, CommitLog
from spark_mq.store.tiered_storage import TieredStorage


@dataclass(frozen=True)
class VerifyRequest:
    """What to check; see `spark_mq.verify` for the arguments. `since_last` is the file of the journal."""

    store: Location
    conf: BrokerConf
    scratch: Location | None = None
    split_size: int = DEFAULT_SPLIT_SIZE
    since_last: Location | None = None
    tiered: TieredStorage | None = None

    @classmethod
    def of(
        cls,
        store: str,
        broker_conf: str | None = None,
        scratch: str | None = None,
        split_size: int = DEFAULT_SPLIT_SIZE,
        since_last: str | None = None,
        tiered_storage: str | None = None,
    ) -> Self:
        """The request with these arguments."""
        location = Location.resolve(store)
        CommitLog.open(location)
        check_form(location, Door.CHECK)
        folder, journal = (None if path is None else Location.resolve(path) for path in (scratch, since_last))
        tiered = None if tiered_storage is None else TieredStorage.of(location, tiered_storage)
        return cls(location, BrokerConf.of(broker_conf), folder, split_size, journal, tiered)
