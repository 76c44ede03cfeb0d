"""Which units can be of messages with certain tags, by their tags codes alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from spark_mq.format.array_types import Int64s
from spark_mq.format.java_text import hash_code

_INT32 = np.iinfo(np.int32)


def tags_codes_of(tags: Iterable[str]) -> frozenset[int]:
    """The tags codes of messages with one of these tags (`MessageExtBrokerInner.tagsString2tagsCode`@5.3.3)."""
    return frozenset(hash_code(text) for text in tags)


def can_have_tags(tags_codes: Int64s, requested: Iterable[int]) -> npt.NDArray[np.bool_]:
    """Which units can be of messages whose tags have one of the requested codes.

    A code outside the integers of 32 bits is not a hash: it is the delivery time of a message of SCHEDULE_TOPIC_XXXX,
    or an address in `consumequeue_ext` (`ConsumeQueueExt.isExtAddr`@5.3.3). So such a unit can be of any message.
    Different tags can have one hash: a reader compares the tags of each message.
    """
    is_other = (tags_codes < _INT32.min) | (tags_codes > _INT32.max)
    result: npt.NDArray[np.bool_] = is_other | np.isin(tags_codes, np.array(sorted(requested), np.int64))
    return result
