"""The delay levels of a broker: their default, and the delays that a setting gives them."""

from __future__ import annotations

from spark_mq.errors import OptionError

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""`MessageStoreConfig.messageDelayLevel`@5.3.3."""

_UNIT_MILLIS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAX_DIGITS = 10
"""A delay of at most ten digits fits into 64 bits in milliseconds."""


def delay_level_millis(text: str) -> list[int]:
    """The delays of levels 1, 2, ... in milliseconds (`DefaultMessageStore.parseDelayLevel`@5.3.3).

    Args:
        text: The broker's `messageDelayLevel`: delays with unit s, m, h or d, separated by spaces.

    Raises:
        OptionError: `text` is empty, or a piece of it is not a number with one of these units.

    Example:
        >>> delay_level_millis("1s 5m")
        [1000, 300000]
    """
    delays = []
    for piece in text.split():
        number, unit = piece[:-1], piece[-1]
        if unit not in _UNIT_MILLIS or not number.isdecimal() or len(number) > _MAX_DIGITS:
            raise OptionError(f"messageDelayLevel: {piece!r} is not a delay such as 10s, 5m, 1h or 2d")
        delays.append(int(number) * _UNIT_MILLIS[unit])
    if not delays:
        raise OptionError("messageDelayLevel is empty; it needs a delay such as 10s for each level")
    return delays
