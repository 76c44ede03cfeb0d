"""The tables of `docs/verify.md`: all codes, and the closed list of fields that no check can see.

`python -m spark_mq.verifier.code_page docs/verify.md` writes them into the page, between its marks.

The list is closed: `tests/verifier/test_random_damages.py` damages stores at random places, and every damage that is
not found must be in a field of this list. With `enabledAppendPropCRC`, each record has a CRC over all its fields, and
the first group is empty.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from spark_mq.verifier.codes import Code, all_codes

_MARKED = re.compile(r"(<!-- (codes|unseen) -->\n).*?(<!-- /\2 -->\n)", re.DOTALL)


@dataclass(frozen=True)
class UnseenField:
    """A field that can change without a finding.

    Attributes:
        of: What has the field: `record`, `segment`, `consume queue`, `index file`, `checkpoint`, `config`, `store`.
        why: Why no check sees a change, and what of the field is checked nevertheless.
    """

    name: str
    of: str
    why: str


UNSEEN = (
    UnseenField("flag", "record", "the application's own number"),
    UnseenField("sysFlag, bits 0x2, 0x40, 0x300, and 0x8 alone", "record", "they change neither queue nor index"),
    UnseenField("sysFlag, bit 0x1 of a compressed body", "record", "the body is then served as it is stored"),
    UnseenField("bornTimestamp", "record", "the producer's clock"),
    UnseenField("born host", "record", "address and port of the producer"),
    UnseenField("store host", "record", "address and port of the broker; offset message ids contain it"),
    UnseenField(
        "storeTimestamp",
        "record",
        "its order is checked, and of messages with keys the whole seconds, as the index has them",
    ),
    UnseenField("reconsumeTimes", "record", "a number that nothing else contains"),
    UnseenField("preparedTransactionOffset", "record", "a number that nothing else contains"),
    UnseenField("bodyCRC of an empty body", "record", "brokers do not check it either"),
    UnseenField("body and bodyCRC, changed together", "record", "the CRC is the only copy of what the body was"),
    UnseenField("queueOffset of a message of type PREPARED or ROLLBACK", "record", "the message has no unit"),
    UnseenField("queueId of a message of type PREPARED or ROLLBACK", "record", "the message has no unit"),
    UnseenField(
        "topic of a message of type ROLLBACK, or PREPARED without keys", "record", "it has neither unit nor index entry"
    ),
    UnseenField(
        "properties",
        "record",
        "except KEYS, UNIQ_KEY, and TAGS or, of a delayed message, DELAY, whose values index and queues contain",
    ),
    UnseenField(
        "KEYS, UNIQ_KEY or TAGS, replaced by a value of the same length and Java hashCode",
        "record",
        "index and queues contain only the hash",
    ),
    UnseenField("bytes of a filler after its first eight", "segment", "brokers up to 4.9.0 leave any bytes there"),
    UnseenField("bytes after the live end", "segment", "a recovery does not clear them; old records are found"),
    UnseenField("units of expired messages", "consume queue", "only their order is checked"),
    UnseenField("entries of expired messages", "index file", "only their pointers are checked"),
    UnseenField(
        "first segments that are missing",
        "store",
        "they can have expired; LOG_BEFORE_START says what queues and index still have of them",
    ),
    UnseenField(
        "entries of tags of the first messages of an index, or of four or more that follow each other",
        "index file",
        "brokers before 5.4.0 put none, and a store can have been opened by both",
    ),
    UnseenField("entry 0, and the entry after the last one", "index file", "a broker never reads them"),
    UnseenField("header of a file without entries", "index file", "the first entry overwrites it"),
    UnseenField("times that are too early", "checkpoint", "a broker flushes them now and then"),
    UnseenField("masterFlushedOffset, and the bytes after the fields", "checkpoint", "brokers do not need them"),
    UnseenField("values", "config", "except offsets past the ends of queues"),
    UnseenField("timerwheel, timerlog, compaction, and other folders", "store", "they are not checked"),
)
"""All such fields."""


def codes_table() -> str:
    """A section for each code, in the order of the table."""
    return "\n".join(map(_section, all_codes()))


def _section(code: Code) -> str:
    brokers = code.brokers
    rows = [("what", code.meaning), ("how", code.cause)]
    if len({brokers.v4_9, brokers.v5_0, brokers.v5_3_2}) == 1:
        rows.append(("brokers", brokers.v4_9))
    else:
        rows += [("4.9", brokers.v4_9), ("5.0 to 5.3.1", brokers.v5_0), ("5.3.2 on", brokers.v5_3_2)]
    rows.append(("do", code.remedy))
    lines = [f"### {code.name}", "", f"| {code.severity} | |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {name} | {text} |" for name, text in rows), ""])


def unseen_table() -> str:
    """A row for each field that no check can see."""
    rows = [f"| {field.of} | {field.name} | {field.why} |" for field in UNSEEN]
    return "\n".join(["| of | field | |", "| --- | --- | --- |", *rows, ""])


def filled(page: str) -> str:
    """The page with both tables between its marks."""
    tables = {"codes": codes_table(), "unseen": unseen_table()}
    return _MARKED.sub(lambda mark: f"{mark[1]}\n{tables[mark[2]]}\n{mark[3]}", page)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
