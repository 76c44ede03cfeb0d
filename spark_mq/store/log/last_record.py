"""Whether the last record of the log is whole: a broker may be writing it while it is read.

A broker appends a record with one copy into its mapped file, from the first byte to the last (`DefaultMappedFile`,
`CommitLog.DefaultAppendMessageCallback`@5.3.3). A replica appends as many bytes as have arrived
(`DefaultHAClient`@5.3.3). A reader in between sees the beginning of the record, and zeros. The lengths are stored
before the text of the properties, so the framing of such a record is right too early. All records before it were
finished before the broker began it.

So the record that reaches a segment's `data_end` (after which there were only zeros when the segments were listed) is
read a second time, and counts only if it is finished. A broker's recovery, too, cuts the log before a record whose body
has another CRC (`CommitLog.recoverAbnormally`@5.3.3).
"""

from __future__ import annotations

from collections.abc import Callable

from spark_mq.format.crc import has_property_crc, is_body_crc_wrong, is_property_crc_wrong
from spark_mq.format.record import Record

UNFINISHED = "UNFINISHED"
"""The code of an unfinished record. The log ends before this record, so no reader of a whole log returns it."""

UNFINISHED_REASON = "the last record is not whole: it is being written"


def is_finished(record: Record, stored: Callable[[], bytes]) -> bool:
    """Whether the record is written to its end, as far as its bytes show.

    The last byte of its text is not zero, and its CRCs are right. `stored` returns the bytes of the record. It is
    called only if the record has a property CRC.
    """
    text = record.properties or record.topic
    if text.endswith(b"\0") or is_body_crc_wrong(record):
        return False
    return not (has_property_crc(record.properties) and is_property_crc_wrong(stored(), record.properties))
