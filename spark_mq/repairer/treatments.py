"""What a repair does about each code of a finding."""

from __future__ import annotations

from enum import StrEnum


class Treatment(StrEnum):
    """What is done about a finding; the value is the reason that a report gives."""

    QUEUE_FILE = "the queue file is made from the log"
    INDEX_FILE = "the index file is made from the log"
    CHECKPOINT = "times and offsets that are too late become those of the log's end"
    CONFIG = "its .bak is copied over the file"
    OFFSETS = "offsets after the end of a queue become the end of the queue"
    ASIDE = "the file is moved into the backup"
    TAIL = "the bytes after the live end become zeros"
    NOTHING = "nothing is needed"
    NOT_REPAIRED = "cannot be repaired from this store"


_CODES = {
    Treatment.QUEUE_FILE: (
        "QUEUE_UNIT_WRONG",
        "QUEUE_UNIT_MISPLACED",
        "QUEUE_UNIT_MISSING",
        "QUEUE_UNIT_EXTRA",
        "QUEUE_UNIT_STALE",
        "QUEUE_PRE_BLANK",
        "QUEUE_EXPIRED_ORDER",
        "QUEUE_DUE_TIME",
        "QUEUE_EXT_MISSING",
        "QUEUE_LAGS",
        "QUEUE_LAGS_CLEAN",
        "QUEUE_MISSING",
        "QUEUE_FILE_SIZE",
        "QUEUE_FILE_MISSING",
    ),
    Treatment.INDEX_FILE: (
        "INDEX_FILE_SIZE",
        "INDEX_HEADER",
        "INDEX_COUNT",
        "INDEX_SLOT",
        "INDEX_CHAIN",
        "INDEX_ENTRY_WRONG",
        "INDEX_TIME",
        "INDEX_ENTRY_MISSING",
        "INDEX_ENTRY_STALE",
        "INDEX_AFTER_END",
        "INDEX_ORDER",
        "INDEX_LAGS",
        "INDEX_MISSING",
    ),
    Treatment.CHECKPOINT: ("CHECKPOINT_SIZE", "CHECKPOINT_AHEAD"),
    Treatment.CONFIG: ("CONFIG_FROM_BACKUP",),
    Treatment.OFFSETS: ("OFFSET_PAST_END", "DELAY_OFFSET_PAST_END"),
    Treatment.ASIDE: (
        "FOLDER_STRAY_FILE",
        "FOLDER_SUBFOLDER",
        "QUEUE_FILE_NAME",
        "SEGMENT_EMPTY",
        "SEGMENT_STRAY",
    ),
    Treatment.TAIL: ("LOG_STALE_TAIL",),
    Treatment.NOTHING: (
        "RECORD_TIME_BACK",
        "LOG_UNFINISHED",
        "LOG_BEFORE_START",
        "QUEUE_DELETED",
        "QUEUE_LEFT_OUT",
        "NOT_CHECKED",
        "INDEX_ENTRY_TWICE",
        "ABORT",
        "OFFSET_BEFORE_MIN",
        "TOPIC_NOT_CONFIGURED",
    ),
    Treatment.NOT_REPAIRED: (
        "NOT_A_FILE",
        "QUEUE_EXT_TIME",
        "QUEUE_EXT_BITS",
        "RECORD_BODY_CRC",
        "RECORD_CRC",
        "RECORD_PROPERTIES",
        "RECORD_SYS_FLAG",
        "RECORD_COMPRESSION",
        "RECORD_QUEUE_OFFSET",
        "RECORD_TIME_FAR_BACK",
        "LOG_CORRUPT",
        "SEGMENT_FILLER",
        "SEGMENT_SIZE",
        "SEGMENT_GAP",
        "TOPIC_NAME",
        "QUEUE_NO_MESSAGE",
        "QUEUE_OFFSET_TWICE",
        "INDEX_NO_MESSAGE",
        "CONFIG_BROKEN",
    ),
}

TREATMENTS = {code: treatment for treatment, codes in _CODES.items() for code in codes}
"""The treatment of each code."""
