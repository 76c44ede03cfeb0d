"""The tables of `docs/verify.md`: all codes, and the closed list of fields that no check can see.

`python -m spark_mq.verifier.code_page docs/verify.md` writes them into the page, between its marks.

The list is closed: `tests/verifier/test_random_damages.py` damages stores at random places, and every damage that is
not found must be in a field of this list. With `enabledAppendPropCRC`, each record has a CRC over all its fields, and
the first group is empty.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from spark_mq.verifier.codes import CODES

_MARKED = re.compile(r"(<!-- (codes|unseen) -->\n).*?(<!-- /\2 -->\n)", re.DOTALL)

UNSEEN = (
    ("record", "flag", "the application's own number"),
    ("record", "sysFlag, bits 0x2, 0x40, 0x300, and 0x8 alone", "they change neither queue nor index"),
    ("record", "sysFlag, bit 0x1 of a compressed body", "the body is then served as it is stored"),
    ("record", "bornTimestamp", "the producer's clock"),
    ("record", "born host", "address and port of the producer"),
    ("record", "store host", "address and port of the broker; offset message ids contain it"),
    (
        "record",
        "storeTimestamp",
        "its order is checked, and of messages with keys the whole seconds, as the index has them",
    ),
    ("record", "reconsumeTimes", "a number that nothing else contains"),
    ("record", "preparedTransactionOffset", "a number that nothing else contains"),
    ("record", "bodyCRC of an empty body", "brokers do not check it either"),
    ("record", "body and bodyCRC, changed together", "the CRC is the only copy of what the body was"),
    ("record", "queueOffset of a message of type PREPARED or ROLLBACK", "the message has no unit"),
    ("record", "queueId of a message of type PREPARED or ROLLBACK", "the message has no unit"),
    ("record", "topic of a message of type ROLLBACK, or PREPARED without keys", "it has neither unit nor index entry"),
    (
        "record",
        "properties",
        "except KEYS, UNIQ_KEY, and TAGS or, of a delayed message, DELAY, whose values index and queues contain",
    ),
    (
        "record",
        "KEYS, UNIQ_KEY or TAGS, replaced by a value of the same length and Java hashCode",
        "index and queues contain only the hash",
    ),
    ("segment", "bytes of a filler after its first eight", "brokers up to 4.9.0 leave any bytes there"),
    ("segment", "bytes after the live end", "a recovery does not clear them; old records are found"),
    ("consume queue", "units of expired messages", "only their order is checked"),
    ("index file", "entries of expired messages", "only their pointers are checked"),
    (
        "store",
        "first segments that are missing",
        "they can have expired; LOG_BEFORE_START says what queues and index still have of them",
    ),
    (
        "index file",
        "entries of tags of the first messages of an index, or of four or more that follow each other",
        "brokers before 5.4.0 put none, and a store can have been opened by both",
    ),
    ("index file", "entry 0, and the entry after the last one", "a broker never reads them"),
    ("index file", "header of a file without entries", "the first entry overwrites it"),
    ("checkpoint", "times that are too early", "a broker flushes them now and then"),
    ("checkpoint", "masterFlushedOffset, and the bytes after the fields", "brokers do not need them"),
    ("config", "values", "except offsets past the ends of queues"),
    ("store", "timerwheel, timerlog, compaction, and other folders", "they are not checked"),
)
"""What has the field, the field, and why no check sees a change, and what of it is checked nevertheless."""


def filled(page: str) -> str:
    """The page with both tables between its marks."""
    sections = [f"### {name}\n\n{_table(f'| {code.severity} | |', code.rows())}" for name, code in CODES.items()]
    tables = {"codes": "\n".join(sections), "unseen": _table("| of | field | |", UNSEEN)}
    return _MARKED.sub(lambda mark: f"{mark[1]}\n{tables[mark[2]]}\n{mark[3]}", page)


def _table(header: str, rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, "|" + " --- |" * header.count(" |"), *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
