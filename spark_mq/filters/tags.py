"""The tags of a subscription (`FilterAPI.buildSubscriptionData`@5.3.3, the same in 4.9.7)."""

from __future__ import annotations

from spark_mq.filters.tokens import refusal

ALL = "*"
_SEPARATOR = "||"
_SPACE = "".join(map(chr, range(0x21)))
"""What `String.trim` removes."""


def parse_tags(text: str | None) -> frozenset[str] | None:
    """The tags that a subscription names; None for all messages.

    A text with blank tags only matches no message.

    Raises:
        FilterError: The text consists of `||` only.

    Example:
        >>> sorted(parse_tags("paid || shipped"))
        ['paid', 'shipped']
    """
    if not text or text == ALL:
        return None
    pieces = text.split(_SEPARATOR)
    if not any(pieces):
        raise refusal(text, 0, "it names no tag: give one, or several as 'a || b', or * for all messages")
    return frozenset(filter(None, (piece.strip(_SPACE) for piece in pieces)))
