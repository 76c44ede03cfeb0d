"""Op messages: which half messages a broker settled, by commit or by rollback (`TransactionalMessageServiceImpl`).

The body of an op message contains queue offsets of half messages, which are in the queue of the half topic with the
same queue id. A broker of 4.9 writes one offset; one of 5.x writes many, each with a comma after it
(`TransactionalMessageServiceImpl.getOpMessage`@5.3.3). Commit and rollback write the same op messages, with tag `d`.
"""

from __future__ import annotations

import re

import pyarrow as pa

REMOVE_TAG = "d"
"""The tag of an op message (`TransactionalMessageUtil.REMOVE_TAG`@5.3.3). A broker ignores others."""


_OFFSET = r"\+?[0-9]{1,18}"


def half_queue_offsets(body: bytes) -> list[int]:
    """The queue offsets of half messages in the body of one op message; a broker ignores other pieces."""
    pieces = body.split(b",")
    return [int(piece) for piece in pieces if re.fullmatch(_OFFSET.encode(), piece)]


def settled_halves(ops: pa.Table) -> pa.Table:
    """The half messages that op messages name, a row for each of them: the twin of `half_queue_offsets` for many.

    Args:
        ops: Op messages: `commit_log_offset`, `queue_id`, `tags` and `body`.

    Returns:
        A table with `op_offset`, the commit log offset of the op message; `queue_id`; and `half_queue_offset`.
    """
    import pyarrow.compute as pc  # a command that prints one op message must not wait for it

    ops = ops.filter(pc.equal(ops["tags"], REMOVE_TAG)).combine_chunks()
    lists = pc.split_pattern(ops["body"].cast(pa.large_binary()), pattern=b",").combine_chunks()
    pieces = pc.list_flatten(lists)
    is_offset = pc.match_substring_regex(pieces, f"^{_OFFSET}$")
    owners = ops.take(pc.list_parent_indices(lists).filter(is_offset))
    texts = pc.replace_substring_regex(pieces.filter(is_offset).cast(pa.large_string()), r"^\+", "")
    return pa.table(
        {
            "op_offset": owners["commit_log_offset"],
            "queue_id": owners["queue_id"],
            "half_queue_offset": texts.cast(pa.int64()),
        }
    )
