"""Op messages: which half messages a broker settled, by commit or by rollback (`TransactionalMessageServiceImpl`).

The body of an op message contains queue offsets of half messages, which are in the queue of the half topic with the
same queue id. A broker of 4.9 writes one offset; one of 5.x writes many, each with a comma after it
(`TransactionalMessageServiceImpl.getOpMessage`@5.3.3). Commit and rollback write the same op messages, with tag `d`.
"""

from __future__ import annotations

import re

REMOVE_TAG = "d"
"""The tag of an op message (`TransactionalMessageUtil.REMOVE_TAG`@5.3.3). A broker ignores others."""

TIMER_PRECISION = 1000
"""Milliseconds by which a timer ends after TIMER_OUT_MS at most (`timerPrecisionMs`@5.3.3, by default)."""

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
"""The group whose offsets say how far the broker has decided about half messages (`TransactionalMessageUtil`@5.3.3)."""

HALF_OFFSET = r"\+?[0-9]{1,18}"


def half_queue_offsets(body: bytes) -> list[int]:
    """The queue offsets of half messages in the body of one op message; a broker ignores other pieces."""
    pieces = body.split(b",")
    return [int(piece) for piece in pieces if re.fullmatch(HALF_OFFSET.encode(), piece)]
