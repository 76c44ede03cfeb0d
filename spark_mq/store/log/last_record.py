"""The last record of the log, which may be being written while it is read.

A broker appends a record with one copy into its mapped file, from the first byte to the last (`DefaultMappedFile`,
`CommitLog.DefaultAppendMessageCallback`@5.3.3); a replica appends as many bytes as have come (`DefaultHAClient`@5.3.3).
Who reads in between sees the record's beginning, and zeros. The lengths stand before the text of the properties, so its
framing is sound too early. Records before it were finished before it was begun.

So the record that reaches a segment's `data_end`, behind which there were only zeros when the segments were listed, is
looked at once more before it counts, and has to be finished. A broker's recovery, too, cuts the log before a record
whose body has another CRC (`CommitLog.recoverAbnormally`@5.3.3).
"""

from __future__ import annotations

from spark_mq.format.array_types import Bytes
from spark_mq.format.kernels.crc import wrong_body_crcs, wrong_property_crcs
from spark_mq.format.kernels.frames import Frames

UNFINISHED = "UNFINISHED"
"""The code of such a record. The log ends before it, so no reader of a whole log gives it out."""

UNFINISHED_REASON = "the last record is not whole: it is being written"


def is_finished(buffer: Bytes, frames: Frames) -> bool:
    """Whether the one record in `frames` is written to its end, as far as its bytes can tell.

    Its last byte of text is not zero, and its CRCs are right.
    """
    frame = frames[0]
    text_end, length = int(frame.topic_start + frame.topic_length), int(frame.topic_length)
    if frame.properties_length > 0:
        text_end, length = int(frame.properties_start + frame.properties_length), int(frame.properties_length)
    if length and not buffer[text_end - 1]:
        return False
    return not wrong_body_crcs(buffer, frames)[0] and not wrong_property_crcs(buffer, frames)[0]
