"""How a broker with `enableConsumeQueueExt` makes extension units: the sizes of units and files, and the filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from spark_mq.errors import OptionError
from spark_mq.format.bloom_filter import BloomFilter
from spark_mq.format.consume_queue_ext import END_BLANK_SIZE, HEADER_SIZE, MAX_UNIT_SIZE, ExtLayout
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf

if TYPE_CHECKING:
    from spark_mq.store.config.consumer_filters import ConsumerFilter

Values = npt.NDArray[Any]
"""Staged values of messages: `queue_offset`, `tags_code`, `store_timestamp`, `bit_map` (`ExtSettings.staged_dtype`)."""


STAGED_EXT_SIZE = 24
"""Bytes that are staged for a message, besides its bit map: queue offset, tags code and store time."""


@dataclass(frozen=True)
class StagedExt:
    """The staged values of a queue's messages in a segment, and the first and last queue offset among them."""

    topic: str
    queue_id: int
    file: str
    position: int
    count: int
    first: int
    last: int


@dataclass(frozen=True)
class ExtSettings:
    """How a broker makes extension units; it has no filters without `enableCalcFilterBitMap`."""

    file_size: int
    bit_count: int
    filters: tuple[ConsumerFilter, ...] = ()

    @classmethod
    def of(cls, store: Location, conf: BrokerConf) -> Self:
        """The settings of a broker that starts on a store."""
        bloom = conf.bloom_filter
        filters = _filters(store, bloom) if conf.is_enabled("enableCalcFilterBitMap") else ()
        found = cls(conf.consume_queue_ext_file_size, bloom.bit_count, filters)
        largest = HEADER_SIZE + bloom.bit_count // 8
        if largest > min(MAX_UNIT_SIZE, found.file_size - END_BLANK_SIZE):
            raise OptionError(
                f"{conf.source}: extension units of {largest} bytes do not fit: a broker stores at most "
                f"{MAX_UNIT_SIZE}, and its files have {found.file_size} (mappedFileSizeConsumeQueueExt)"
            )
        return found

    @property
    def staged_dtype(self) -> np.dtype[Any]:
        """The fields of staged values."""
        names = [("queue_offset", np.int64), ("tags_code", np.int64), ("store_timestamp", np.int64)]
        return np.dtype([*names, ("bit_map", np.uint8, (self.bit_count // 8 if self.filters else 0,))])

    def filters_of(self, topic: str) -> tuple[ConsumerFilter, ...]:
        """The filters for a topic."""
        return tuple(one for one in self.filters if one.topic == topic)

    def layout(self, topic: str) -> ExtLayout:
        """Where the units of a queue of the topic are: they have a bit map if any group has a filter for the topic."""
        bits = self.bit_count // 8 if self.filters_of(topic) else 0
        return ExtLayout(self.file_size, HEADER_SIZE + bits)


def _filters(store: Location, bloom: BloomFilter) -> tuple[ConsumerFilter, ...]:
    from spark_mq.store.config.consumer_filters import CONSUMER_FILTERS, load_consumer_filters, usable_filters

    filters = usable_filters(load_consumer_filters(store), bloom)
    outside = [one for one in filters for bit in one.bit_positions or () if not 0 <= bit < bloom.bit_count]
    if outside:
        raise OptionError(
            f"config/{CONSUMER_FILTERS}: the bits of group {outside[0].consumer_group} are not in a bit map of "
            f"{bloom.bit_count} bits; remove the group from the file"
        )
    return filters
