"""All codes of findings, in one table: what a code means, how it comes about, what brokers do with it, and the remedy.

`spark-mq verify --explain CODE` and `spark-mq repair` follow this table, and `python -m spark_mq.verifier.codes
docs/verify.md` writes it into the documentation. The severity of a code never changes:

- `note`: worth knowing; a store with nothing else is sound.
- `warning`: some broker, or some tool, gives wrong or fewer results than the log has.
- `error`: a message is lost, damaged or not found, or a broker does not start.

What brokers do was read in the source of Apache RocketMQ; STORE_FORMAT names classes and tags.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path


class Severity(StrEnum):
    """How grave a finding is, the gravest last."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


class Treatment(StrEnum):
    """What a repair does about a finding; the value is the reason that its report gives."""

    QUEUE_FILE = "the queue file is made from the log"
    DATABASE = "the database of the queues is made from the log; the files of the old one are in the backup"
    INDEX_FILE = "the index file is made from the log"
    CHECKPOINT = "times and offsets that are too late become those of the log's end"
    CONFIG = "its .bak is copied over the file"
    OFFSETS = "offsets after the end of a queue become the end of the queue"
    ASIDE = "the file is moved into the backup"
    TAIL = "the bytes after the live end become zeros"
    NOTHING = "nothing is needed"
    NOT_REPAIRED = "cannot be repaired from this store"


_RELEASES = ("4.9", "5.0 to 5.3.1", "5.3.2 on")


@dataclass(frozen=True)
class Code:
    """One kind of finding; `brokers` says what all brokers do with it, or those of each of `_RELEASES`."""

    severity: Severity
    meaning: str
    cause: str
    brokers: str | tuple[str, str, str]
    remedy: str
    treatment: Treatment = Treatment.NOT_REPAIRED

    def rows(self) -> Iterator[tuple[str, str]]:
        """The entry of the table: titles and texts."""
        yield "what", self.meaning
        yield "how", self.cause
        if isinstance(self.brokers, str):
            yield "brokers", self.brokers
        else:
            yield from zip(_RELEASES, self.brokers, strict=True)
        yield "do", self.remedy


_note = partial(Code, Severity.NOTE, treatment=Treatment.NOTHING)
_warning = partial(Code, Severity.WARNING)
_error = partial(Code, Severity.ERROR)

_DAMAGED_MEDIUM = "a damaged disk or memory, an interrupted copy, or a program that wrote into the file"
_REPAIR = "`spark-mq repair STORE --apply`"
_MADE_AGAIN = f"{_REPAIR} makes the file again from the log"
_QUEUE_AGAIN = (_MADE_AGAIN, Treatment.QUEUE_FILE)
_DATABASE_AGAIN = (
    f"{_REPAIR} makes the database again from the log, by the broker's settings (--broker-conf)",
    Treatment.DATABASE,
)
_INDEX_AGAIN = (_MADE_AGAIN, Treatment.INDEX_FILE)
_ASIDE = (f"{_REPAIR} moves it into a backup", Treatment.ASIDE)
_EXT_AGAIN = (
    "`spark-mq rebuild` with the broker's settings (--broker-conf, enableConsumeQueueExt) makes `consumequeue` and "
    "`consumequeue_ext` again"
)
_FROM = "`spark-mq repair STORE --from REPLICA` takes what is damaged from a replica"
_REPLICA = f"{_FROM}; without one, the message is lost"
_STAYS = f"{_FROM}; without one, the message stays, and is served as it is"
_REFUSES = "the broker does not start: it reports that the length of the file does not match"
_COPY_TIERED = "copy the file, or the metadata, from a backup; messages that the store has, too, are not lost"
_FINDS_LESS = "a query by key does not find the messages, or finds others; consumers are not affected"
_SERVES = "the broker does not notice it, and serves the message as it is"

CODES = {
    # records
    "RECORD_BODY_CRC": _error(
        "The body of a message is not the body whose CRC the record has.",
        _DAMAGED_MEDIUM,
        "a recovery that reads this record cuts the log before it: all later messages are lost; else it is served, "
        "and the client refuses it",
        f"before the next boot: {_REPLICA}",
    ),
    "RECORD_CRC": _error(
        "The record is not the record whose CRC its property __CRC32# has.",
        f"{_DAMAGED_MEDIUM}; or the message was forwarded with its properties to a broker without enabledAppendPropCRC",
        (
            "the broker does not know this property",
            "from 5.2.0 on with forceVerifyPropCRC, a recovery cuts the log before the record; else nothing",
            "with forceVerifyPropCRC, a recovery cuts the log before the record; else nothing",
        ),
        _REPLICA,
    ),
    "RECORD_PROPERTIES": _warning(
        "A part of the properties has no name, no separator between name and value, or bytes that are not UTF-8.",
        f"{_DAMAGED_MEDIUM}; or a producer that sends text in another encoding, which a client that is not Java can do",
        "the broker and its clients ignore a part without name or separator: a tag, a key or another property can be "
        "missing; they replace bytes that are not UTF-8 by U+FFFD",
        f"nothing, if the producer sends such text; else {_STAYS}",
    ),
    "RECORD_SYS_FLAG": _warning(
        "sysFlag has bits that no broker knows.", f"{_DAMAGED_MEDIUM}; or a broker later than 5.3.3", _SERVES, _STAYS
    ),
    "RECORD_COMPRESSION": _warning(
        "sysFlag says that the body is compressed, and the body does not begin as such a body does.",
        f"{_DAMAGED_MEDIUM}; or a producer that set the bit itself",
        "the broker serves the message; the client cannot decompress it",
        _STAYS,
    ),
    "RECORD_QUEUE_OFFSET": _error(
        "The queue offset of a message is negative or impossibly large.",
        _DAMAGED_MEDIUM,
        "when it is dispatched, the message gets no unit, or the next position of its queue",
        _REPLICA,
    ),
    "RECORD_TIME_BACK": _note(
        "The store time of a message is up to a minute before that of the message before it.",
        "the clock of the broker was set back",
        "searches by time can miss by as much",
        "nothing",
    ),
    "RECORD_TIME_FAR_BACK": _warning(
        "The store time of a message is more than a minute before that of the message before it.",
        f"the clock of the broker was set back by that much; or {_DAMAGED_MEDIUM} changed one of the two times",
        "searches by time can miss messages; a recovery after a crash can choose another segment to start from",
        "if only one record has a time of its own, copy the segment from a replica; otherwise nothing",
    ),
    # the log
    "LOG_CORRUPT": _error(
        "Bytes of the log are not a record.",
        _DAMAGED_MEDIUM,
        "a recovery that reads these bytes ends the log before them: all later messages are lost; it takes a "
        "record that only states another commit log offset for a message. A broker that does not read them answers "
        "pulls of these messages with nothing, or with an error",
        f"before the next boot: {_FROM}; `spark-mq rebuild --mode permissive` keeps the rest reachable",
    ),
    "LOG_STALE_TAIL": _warning(
        "After the live end of the log there are old records, whole and with the right offset.",
        "a recovery cut the log and did not clear the bytes after the cut; the messages since are shorter",
        (
            "a clean boot can take them for live ones, if they follow the live end without a gap",
            "a clean boot can take them for live ones, if they follow the live end without a gap",
            "a clean boot can take them for live ones, and dispatches them, if they follow the live end without a gap",
        ),
        f"{_REPAIR} fills the bytes after the live end with zeros",
        Treatment.TAIL,
    ),
    "LOG_UNFINISHED": _note(
        "After the live end of the log there are bytes that are not a whole record.",
        "a broker is writing a record, or was killed while it did, or a recovery cut the log in the middle of a record",
        "the broker overwrites them",
        "nothing; if consume queues have units after the live end (QUEUE_UNIT_STALE), the last messages are lost",
    ),
    "SEGMENT_FILLER": _error(
        "A segment does not end with its filler: from some offset on, it has neither records nor the filler.",
        f"{_DAMAGED_MEDIUM}; or the log ended here once, and the next segment is of another time",
        "a recovery that reads this segment ends the log here, and deletes the segments after it",
        f"before the next boot: {_FROM}",
    ),
    "SEGMENT_SIZE": _error(
        "A segment has another size than mappedFileSizeCommitLog, or than the other segments.",
        "a copy was cut, or the setting was changed",
        _REFUSES,
        f"{_FROM}, or copy the segment again; if the setting was changed, change it back",
    ),
    "SEGMENT_EMPTY": _warning(
        "A file of commitlog/ has no bytes.",
        "the disk was full, or the machine failed, when the broker created the file",
        (
            "the broker does not start",
            "before 5.1.3 the broker does not start; from 5.1.3 on it deletes the file if it is the last one",
            "the broker deletes the file if it is the last one, else it does not start",
        ),
        f"{_REPAIR} moves the file away if it is the last one; otherwise copy it from a replica",
        Treatment.ASIDE,
    ),
    "SEGMENT_GAP": _error(
        "No segment contains these bytes of the log.",
        "a file was removed or not copied",
        "the broker starts, and logs a warning; messages in the gap are lost, and pulls of them fail",
        f"{_FROM}; `spark-mq rebuild --mode permissive` keeps the rest reachable",
    ),
    "LOG_BEFORE_START": _note(
        "Queues or index files have messages that are before the first segment.",
        "the messages expired; or the first segments were removed, were not copied, or are in a folder of "
        "readOnlyCommitLogStorePaths, which looks the same",
        "these messages cannot be read; queues begin at the first message of the log",
        "nothing, if the messages expired; otherwise link the segments of the other folders into commitlog/, or copy "
        "them from a replica",
    ),
    "SEGMENT_STRAY": _error(
        "A file has the name of a segment, and is not a segment of this log.",
        "a copy under another name, or a file of another store",
        "the broker takes it for a segment; if it is the last one, it writes the next messages there",
        *_ASIDE,
    ),
    "FOLDER_STRAY_FILE": _error(
        "A folder of segments or of queue files contains a file that the broker did not make.",
        "an editor, a copy that was interrupted, or a backup beside the files",
        _REFUSES,
        *_ASIDE,
    ),
    "FOLDER_SUBFOLDER": _warning(
        "A folder of segments, queue files or index files contains another folder.",
        "a backup beside the files, or lost+found if the folder is a filesystem of its own",
        (
            "the broker does not start",
            "before 5.1.0 the broker does not start; from 5.1.0 on it skips the folder, but not one in index/",
            "the broker skips the folder; if it is in index/, the broker does not start",
        ),
        *_ASIDE,
    ),
    "NOT_A_FILE": _error(
        "A named pipe, a device, a socket, a folder or a broken link has the name of a file that the broker opens.",
        "a copy of a tree with links, or a command that named a file of the store as its output",
        "the broker does not start, waits for ever, or takes it for an empty file",
        "move it away",
    ),
    # DLedger
    "DLEDGER_ENTRY": _error(
        "The index of a DLedger entry does not follow that of the entry before it, or its term is lower.",
        f"{_DAMAGED_MEDIUM}; or a part of the log is damaged, see LOG_CORRUPT",
        "a boot cuts the log before the entry if it is in the last three segments; else followers do not get it",
        "copy the store from another node; `spark-mq restore STORE NEW` makes a plain store of all readable messages",
    ),
    "DLEDGER_INDEX": _warning(
        "DLedger's index of entries has another position, size, index or term than an entry.",
        f"{_DAMAGED_MEDIUM}; or a crash before the unit was written",
        "a boot makes the units of the last three segments again; with an older wrong unit, followers get other bytes",
        "remove the folder of the index while the node is stopped, and copy the node from another one if it does not "
        "start",
    ),
    "DLEDGER_LOST": _error(
        "The node had entries after the last one of its log.",
        "the head of an entry at the end is damaged; or the end of the log was lost, as after a power failure",
        "a boot cuts the log there; a leader sends the entries again if another node has them",
        "start the node in its group: the leader has the entries; a group of one node has lost them",
    ),
    # consume queues
    "QUEUE_UNIT_WRONG": _error(
        "The unit of a message differs from what the log says: offset, size or tags code.",
        _DAMAGED_MEDIUM,
        "consumers do not get the message, or get other bytes, or a tag filter leaves it out",
        *_QUEUE_AGAIN,
    ),
    "QUEUE_UNIT_MISPLACED": _error(
        "A queue offset has the unit of another message of the same queue: units are shifted, swapped or doubled.",
        "a boot of 5.3.2 or 5.3.3 with a queue that lagged; or a broker closed a gap of the queue",
        "consumers get the message under another queue offset than the record has; committed offsets mean other "
        "messages than before",
        f"{_MADE_AGAIN}; consumers that committed offsets since then can skip or repeat messages",
        Treatment.QUEUE_FILE,
    ),
    "QUEUE_UNIT_MISSING": _error(
        "A message has no unit, and later messages of the queue have.",
        f"{_DAMAGED_MEDIUM}; or a file of the queue was lost",
        "consumers never get the message; a recovery can take the place for the end of the queue",
        *_QUEUE_AGAIN,
    ),
    "QUEUE_UNIT_EXTRA": _error(
        "A unit points into the live log, and the log has no such message of the queue.",
        f"{_DAMAGED_MEDIUM}; or units of records that a recovery cut off, whose place has other messages now",
        "the broker counts the unit: the queue looks longer, and consumers get other bytes or nothing",
        *_QUEUE_AGAIN,
    ),
    "QUEUE_UNIT_STALE": _warning(
        "A unit after the end of the queue points to the live end of the log, or after it.",
        "a recovery cut the log and did not clear the units; or the last records of the log are damaged or lost",
        "the next boot cuts the unit; the broker overwrites it",
        "nothing, if a recovery cut the log; else look for a newer copy of the segment: the messages are lost; "
        f"{_MADE_AGAIN}",
        Treatment.QUEUE_FILE,
    ),
    "QUEUE_NO_MESSAGE": _warning(
        "A queue offset between two messages of the queue has no message in the log.",
        "a part of the log is damaged or missing, see LOG_CORRUPT and SEGMENT_GAP",
        "consumers skip the offset, or stop there until the next boot",
        "as for the damage of the log",
    ),
    "QUEUE_LEFT_OUT": _note(
        "A queue offset between two messages of the queue has no message, and its unit says so.",
        "the store was restored without this message (`spark-mq restore --where`)",
        "consumers skip the offset",
        "nothing",
    ),
    "LIGHT_QUEUE_LEFT_OUT": _note(
        "A message names a light message queue in INNER_MULTI_DISPATCH, and INNER_MULTI_QUEUE_OFFSET does not have a "
        "queue offset for each name.",
        "the list names a plain topic, too, which has no queue offset since 5.0.0; or the broker had enableLmq=false "
        "or enableMultiDispatch=false",
        "without an offset for the last name, or any, the broker puts the message into none of these queues, and later "
        "messages of the queue get units before their queue offsets (QUEUE_UNIT_MISPLACED); without one for another "
        "name, its dispatch fails, as `spark-mq state` says",
        "send the message again, to light message queues only",
    ),
    "QUEUE_OFFSET_TWICE": _warning(
        "Messages have a queue offset that an earlier message of the queue has.",
        "the topic was deleted and created again; or a broker started with a queue whose end it did not know",
        "the queue has one of the messages; a rebuild of the queue, by a broker too, takes the earlier one",
        "nothing, if the topic was created again, but do not rebuild the queue; else send the messages again",
    ),
    "QUEUE_PRE_BLANK": _error(
        "A unit before the first message of a queue is neither pre-blank nor the unit of an expired message.",
        _DAMAGED_MEDIUM,
        "zeros end the queue for a recovery; other units count as messages",
        *_QUEUE_AGAIN,
    ),
    "QUEUE_EXPIRED_ORDER": _warning(
        "Units of expired messages are not in the order of the log.",
        _DAMAGED_MEDIUM,
        "the broker does not offer these units",
        "nothing: the messages are gone",
        Treatment.QUEUE_FILE,
    ),
    "QUEUE_DUE_TIME": _warning(
        "The due time of a delayed message is not its store time plus the delay of its level.",
        "messageDelayLevel is another than the setting that was used here, or was changed; or the unit is damaged",
        "the message is delivered at the time in the unit",
        "give --broker-conf with messageDelayLevel; if that was changed, nothing: a repair would change the times of "
        f"messages that wait; if it was not, {_MADE_AGAIN}",
        Treatment.QUEUE_FILE,
    ),
    "QUEUE_EXT_MISSING": _warning(
        "The tags code of a unit is an address in `consumequeue_ext`, and no extension unit is there.",
        "the folder was not copied, or lost its end; the broker keeps it less carefully than the queues",
        "the message is sent to every subscription, whose client filters by tag; SQL92 expressions are evaluated "
        "without the bit map; a delayed message is due by its level",
        f"{_REPAIR} writes the tags code itself into the unit, as without enableConsumeQueueExt",
        Treatment.QUEUE_FILE,
    ),
    "QUEUE_EXT_TIME": _warning(
        "The store time in an extension unit is not that of its message.",
        _DAMAGED_MEDIUM,
        "a time that is too late makes the broker believe the bits of a group that subscribed after the message",
        _EXT_AGAIN,
    ),
    "QUEUE_EXT_BITS": _note(
        "An extension unit lacks the bits of a group whose SQL92 filter is TRUE, and is older than the message.",
        "`config/consumerFilter.json` is older than the log, so the group had another filter; or the unit is damaged",
        "with the filters of the file, the broker does not send the message to the group",
        _EXT_AGAIN,
        treatment=Treatment.NOT_REPAIRED,
    ),
    "QUEUE_LAGS": _warning(
        "The last messages of a queue have no units, and the broker did not stop cleanly, or runs.",
        "a broker was killed before it dispatched its last messages",
        "the next boot dispatches again what is after the segment that the checkpoint selects, not all",
        f"if `spark-mq check STORE` says yes, start the broker: it completes the queue; else {_REPAIR}",
        Treatment.QUEUE_FILE,
    ),
    "QUEUE_LAGS_CLEAN": _error(
        "The last messages of a queue have no units, although the broker stopped cleanly.",
        "a recovery or a copy lost the end of a queue file; or the file `abort` was removed by hand",
        (
            "the next boot dispatches those after the end of all queues; the others are never consumed",
            "the messages stay without units, and are never consumed",
            "the next boot loses one message of the queue, and shifts every later unit by one",
        ),
        f"before the next boot: {_REPAIR}",
        Treatment.QUEUE_FILE,
    ),
    "QUEUE_MISSING": _error(
        "A queue has messages in the log, and no units: it has no files, or only zeros are in them.",
        "the folder was removed or not copied, or its files were cleared",
        (
            "a clean boot dispatches the messages again if every queue lags as far; an unclean one those after the "
            "segment that the checkpoint selects; the others are never consumed",
            "a clean boot leaves the queue empty; an unclean one dispatches the messages after the segment that the "
            "checkpoint selects; the others are never consumed",
            "a clean boot leaves the queue empty unless no queue has files; an unclean one dispatches the messages "
            "after the segment that the checkpoint selects; the others are never consumed",
        ),
        f"before the next boot: {_REPAIR}",
        Treatment.QUEUE_FILE,
    ),
    "QUEUE_DELETED": _note(
        "The log has messages of a queue that are older than all its units; or of a queue without files, of a topic "
        "that is not configured.",
        "the topic was deleted, and perhaps created again, or a lite topic had no new message for its "
        "`lite.topic.expiration`; the messages stay in the log until they expire",
        "the messages are not consumed",
        "nothing; if the topic was not deleted, treat it as QUEUE_MISSING",
    ),
    "QUEUE_FILE_SIZE": _error(
        "A queue file has another size than mappedFileSizeConsumeQueue, or than the other files.",
        "a copy was cut, or the setting was changed",
        _REFUSES,
        f"{_MADE_AGAIN}; if the setting was changed, change it back",
        Treatment.QUEUE_FILE,
    ),
    "QUEUE_FILE_NAME": _error(
        "The name of a queue file is not a multiple of the size of queue files.",
        "the file was renamed, or the setting mappedFileSizeConsumeQueue was changed",
        "the broker looks for units in the wrong file",
        _MADE_AGAIN,
        Treatment.ASIDE,
    ),
    "QUEUE_FILE_MISSING": _error(
        "A queue has files before and after this file, which does not exist.",
        "the file was removed or not copied",
        "consumers do not get the messages of the file",
        *_QUEUE_AGAIN,
    ),
    "QUEUE_DATABASE": _error(
        "RocksDB does not open or read the database of the queues, so no unit in it was checked; or there is no "
        "database, and the settings say that the broker has light message queues in it.",
        "a file of the database was cut, damaged, or not copied; or the whole database was not copied",
        "the broker does not start, or fails; without the database, it makes units again of those messages that its "
        "start dispatches, and light message queues lack all others",
        *_DATABASE_AGAIN,
    ),
    "QUEUE_OFFSET_TABLE": _error(
        "The table of a RocksDB database has another begin or end of a queue than the queue's units, or an end of the "
        "log that is not there.",
        "a broker of 5.1 to 5.3 was killed or cut its log, or a program wrote into the database",
        "the broker goes by the table: it numbers new messages from another offset, or does not deliver messages that "
        "have units",
        *_DATABASE_AGAIN,
    ),
    "TOPIC_NAME": _error(
        "The topic of a message cannot be the name of a folder.",
        _DAMAGED_MEDIUM,
        "the broker creates the queue in another folder, or fails when it dispatches the message",
        _REPLICA,
    ),
    "NOT_CHECKED": _note(
        "A part of the store is not checked, and can be damaged.",
        "other queues of INNER_MULTI_DISPATCH than light message queues, RocksDB, index files whose numbers of slots "
        "and entries nothing shows, or index entries for the tags of a few messages that an older broker can have "
        "dispatched",
        "nothing",
        "nothing, or what `found` says",
    ),
    # the index
    "INDEX_FILE_SIZE": _warning(
        "An index file has another size than its slots and entries take.",
        "a copy was cut, or maxHashSlotNum or maxIndexNum was changed",
        "the broker extends a short file with zeros, and reads entries at the wrong places; after maxIndexNum was "
        "lowered, a query does not find the keys whose slots lead to entries after the last one that it maps",
        *_INDEX_AGAIN,
    ),
    "INDEX_HEADER": _warning(
        "The header of an index file contradicts its entries.",
        f"{_DAMAGED_MEDIUM}; or a crash of the machine",
        "queries by key with a time leave the file out, or read it in vain; expiry can delete it early",
        *_INDEX_AGAIN,
    ),
    "INDEX_COUNT": _error(
        "The header of an index file counts more or fewer entries than the file has.",
        f"{_DAMAGED_MEDIUM}; or a crash of the machine",
        "queries by key do not find entries after the count; new entries overwrite them",
        *_INDEX_AGAIN,
    ),
    "INDEX_SLOT": _error(
        "A slot of an index file does not lead to the newest entry with its hash.",
        _DAMAGED_MEDIUM,
        _FINDS_LESS,
        *_INDEX_AGAIN,
    ),
    "INDEX_CHAIN": _error(
        "An entry of an index file does not lead to the entry of its slot before it.",
        _DAMAGED_MEDIUM,
        _FINDS_LESS,
        *_INDEX_AGAIN,
    ),
    "INDEX_ENTRY_WRONG": _error(
        "An entry of an index file has another key hash or offset than the messages of the log have at its place.",
        _DAMAGED_MEDIUM,
        _FINDS_LESS,
        *_INDEX_AGAIN,
    ),
    "INDEX_NO_MESSAGE": _warning(
        "An index entry points into a part of the log that is damaged or missing.",
        "see LOG_CORRUPT, SEGMENT_FILLER and SEGMENT_GAP",
        "a query by key skips the entry, or fails",
        "as for the damage of the log",
    ),
    "INDEX_TIME": _warning(
        "The time of an index entry is not the store time of its message.",
        _DAMAGED_MEDIUM,
        "a query by key with a time does not find the message, or ends its search too early",
        *_INDEX_AGAIN,
    ),
    "INDEX_ENTRY_MISSING": _error(
        "Keys of messages have no entry, and keys of later messages have.",
        "an index file was lost; or an unclean boot deleted it and dispatched only newer segments again",
        _FINDS_LESS,
        *_INDEX_AGAIN,
    ),
    "INDEX_DATABASE": _error(
        "The index in RocksDB lacks records of a message, or has others.",
        "a file of the database is that of another time, or a program wrote into the database",
        "with indexFileReadEnable=false, a query by key does not find the message, or finds others",
        "`spark-mq rebuild STORE --only index --replace`, with a --broker-conf that has indexRocksDBEnable=true",
    ),
    "INDEX_ENTRY_TWICE": _note(
        "A key of a message has more entries than the message has such keys.",
        "a recovery put the keys of the last message again",
        "a query by key can count the message twice against its limit",
        "nothing",
    ),
    "INDEX_ENTRY_STALE": _warning(
        "An index entry points to the live end of the log, or after it.",
        "a recovery cut the log; or the last records of the log are damaged or lost",
        "a query by key skips the entry, or finds the message that is later written there",
        f"nothing, if a recovery cut the log; {_MADE_AGAIN}",
        Treatment.INDEX_FILE,
    ),
    "INDEX_AFTER_END": _warning(
        "An index file has bytes after its last entry.", _DAMAGED_MEDIUM, "the broker overwrites them", *_INDEX_AGAIN
    ),
    "INDEX_ORDER": _warning(
        "The names of index files are not in the order of their entries.",
        "the clock or the time zone of the broker was set back; or a rebuild named files in another zone",
        "after the next boot, the broker continues the file with the largest name, which is not the newest one",
        f"{_REPAIR} makes files whose names are in order",
        Treatment.INDEX_FILE,
    ),
    "INDEX_LAGS": _warning(
        "The keys of the last messages have no entries.",
        "a broker was killed before it dispatched its last messages; or the last index file was lost",
        (
            "an unclean boot puts the entries again; a clean one does so only if the queues lag as far",
            "an unclean boot puts the entries again; a clean one never",
            "an unclean boot puts the entries again; a clean one does so only if the queues lag as far",
        ),
        _REPAIR,
        Treatment.INDEX_FILE,
    ),
    "INDEX_MISSING": _warning(
        "Messages have keys, and the store has no index file.",
        "index/ was removed or not copied; or the broker has messageIndexEnable=false or indexFileWriteEnable=false",
        "a query by key finds nothing; a clean boot does not build the index",
        f"{_REPAIR} with --broker-conf, which tells slots and entries; or give one with that setting",
        Treatment.INDEX_FILE,
    ),
    # the rest
    "ABORT": _note(
        "The file `abort` exists: a broker runs on the store, or did not stop cleanly.",
        "kill -9, a crash, or a broker that runs",
        "the next boot checks the log from a segment that the checkpoint selects, and dispatches it again",
        "nothing: the file is needed for a correct boot",
    ),
    "CHECKPOINT_SIZE": _warning(
        "The file `checkpoint` has another size than 4096 bytes.",
        "a copy was cut",
        "the broker extends a short file with zeros: a recovery then starts at the first segment",
        f"{_REPAIR}; or remove the file: a recovery then starts at the first segment, which is safe",
        Treatment.CHECKPOINT,
    ),
    "CHECKPOINT_AHEAD": _warning(
        "A time in the file `checkpoint` is later than the last message or index file.",
        "the end of the log was lost after it was flushed; or a recovery cut the log; or the file is damaged",
        "after a crash, a recovery can start too late, and leave queues and index incomplete",
        f"find out whether the last messages were lost; {_REPAIR} sets the time to that of the last message",
        Treatment.CHECKPOINT,
    ),
    "EPOCHS": _warning(
        "The file `epochFileCheckpoint` cannot be read, or its epochs do not rise, or begin after the end of the log.",
        f"{_DAMAGED_MEDIUM}; or the end of the log was lost; or the log and the file are copies of another time",
        "by the epochs, a replica in controller mode decides where it cuts its log before it follows a master: without "
        "them it cuts nothing, and if none is that of the master it never follows; with some damage, it does not start",
        "`spark-mq compare STORE REPLICA` says what both logs have; start the replica without a store, so that it "
        "copies all from its master, or copy the log and this file together",
    ),
    "COMPACTION_RECORD": _error(
        "A record in the copy of a compacted topic is damaged, is of another queue, or differs from that of the log.",
        _DAMAGED_MEDIUM,
        "with enableCompaction, consumers of the topic get this record, or none of the later ones of its file",
        "copy the folder compaction/ from a replica; `spark-mq compaction-states` names the messages",
    ),
    "COMPACTION_UNIT": _error(
        "A unit of the copy of a compacted topic is missing, leads to no record, or has other values than its record.",
        f"{_DAMAGED_MEDIUM}; or a crash between a record and its unit",
        "with enableCompaction, consumers of the topic do not get the message, or get another one",
        "copy the folder compaction/ from a replica; `spark-mq compaction-states` names the messages",
    ),
    "COMPACTION_MISSING": _warning(
        "The newest message of a key is in the log, and not in the copy of its compacted topic.",
        "the copy lost its end in a crash; or a broker without enableCompaction stored the message",
        "with enableCompaction, consumers of the topic get an older message of the key, or none",
        "`spark-mq resend` sends the message again; or copy the folder compaction/ from a replica",
    ),
    "COMPACTION_POSITION": _warning(
        "compaction/position-checkpoint cannot be read, or names a position after the end of a copy.",
        "a crash while the broker wrote it, or a copy that lost its end",
        "the next compactions leave out the files before the position",
        "delete the file while the broker is stopped: the next compaction begins at the start of the copy",
    ),
    "CONFIG_BROKEN": _error(
        "A file of config/ cannot be read, nor can its .bak.",
        "a crash while the broker wrote it, or an editor",
        "the broker does not start",
        "put a readable copy in its place, or remove it with its .bak",
    ),
    "CONFIG_MISSING": _note(
        "A file of config/ that a broker with such queues has written is missing or empty, and so is its .bak.",
        "a copy of the store without all of config/, or a file that was removed",
        "the broker starts, and what `found` says happens",
        "nothing for a store that no broker will start on; otherwise copy the file from a backup, or from a replica",
    ),
    "TIMER_LOG_CUT": _warning(
        "The timer log ends before the place up to which its broker flushed it.",
        "timerlog/ was removed, or not copied",
        "4.9 has no timers; others never deliver the timers that wait, and are not in the timer log",
        "`spark-mq delayed STORE` names the timers that wait, before a broker starts",
    ),
    "CONFIG_FROM_BACKUP": _warning(
        "A file of config/ cannot be read, and its .bak can.",
        "a crash while the broker wrote it, or an editor",
        "the broker uses the .bak, which is the content before the last change",
        f"{_REPAIR} copies the .bak over the file",
        Treatment.CONFIG,
    ),
    "OFFSET_PAST_END": _warning(
        "A consumer group's offset is past the end of its queue.",
        "the queue lost its end, or the offset file is of another store",
        "the broker tells the consumer to go to the end, or to the start, of the queue",
        "find out whether messages were lost; `mqadmin resetOffsetByTime` sets the group back",
        Treatment.OFFSETS,
    ),
    "OFFSET_BEFORE_MIN": _note(
        "A consumer group's offset is before the first message of its queue.",
        "the messages expired before the group consumed them",
        "the consumer continues at the first message",
        "nothing",
    ),
    "DELAY_OFFSET_PAST_END": _warning(
        "The offset of a delay level is past the end of its queue.",
        "the queue of the level lost its end, or the offset file is of another store",
        "from 4.9.2 on, the broker goes on at the end that the queue has once its messages are dispatched; up to "
        "4.9.1, messages of the level are delivered late or never, until the queue reaches the offset",
        "set the offset in config/delayOffset.json to the end of the queue while the broker is stopped",
        Treatment.OFFSETS,
    ),
    "TOPIC_NOT_CONFIGURED": _note(
        "A topic has messages, and config/topics.json does not name it.",
        "topics.json was lost or is of another store; or the topic was deleted, and its files were not yet",
        "pulls answer TOPIC_NOT_EXIST; from 5.x on, the broker can delete the queues of such a topic",
        "create the topic with mqadmin updateTopic",
    ),
    # tiered storage
    "TIERED_FILE": _error(
        "A file of tiered storage and its metadata differ, or it does not begin where the file before it ends.",
        "a file was removed, cut or copied in part; or `config/tieredStoreMetadata.json` is of another time",
        "the broker makes a missing file again, without bytes, and answers pulls of its messages with nothing; it does "
        "not read a file that the metadata do not list",
        _COPY_TIERED,
    ),
    "TIERED_CORRUPT": _error(
        "Bytes of a queue's log in tiered storage are not a record.",
        f"{_DAMAGED_MEDIUM}; or the broker was killed in the middle of an upload",
        "pulls of these messages get nothing, or other bytes",
        _COPY_TIERED,
    ),
    "TIERED_RECORD": _error(
        "A record in the log of a queue in tiered storage is of another queue.", _DAMAGED_MEDIUM, _SERVES, _COPY_TIERED
    ),
    "TIERED_UNIT": _error(
        "A unit in tiered storage leads to no record with its queue offset, or has the wrong tags code.",
        _DAMAGED_MEDIUM,
        "consumers do not get the message, or get other bytes, or a tag filter leaves it out",
        _COPY_TIERED,
    ),
    "TIERED_NO_UNIT": _note(
        "No unit leads to a record in tiered storage.",
        "the broker was killed between the upload of records and of units, and uploaded the messages again; or the "
        "units are in a file that was deleted",
        "consumers get the message once, by its unit",
        "nothing",
    ),
    "TIERED_TIMES": _warning(
        "The metadata have other store times for a file of tiered storage than its records.",
        f"{_DAMAGED_MEDIUM}; or the broker was killed before it wrote them",
        "a search by time can miss messages, and the file is deleted at another time",
        "nothing",
    ),
    "TIERED_INDEX": _warning(
        "An index file of tiered storage differs from its metadata, or an entry leads to no record with its key.",
        _DAMAGED_MEDIUM,
        _FINDS_LESS,
        _COPY_TIERED,
    ),
}
"""All codes by their names, in the order of the page: the log, queues, the index, the rest."""


def filled(page: str) -> str:
    """The page of the documentation with all codes between its marks."""
    sections = []
    for name, code in CODES.items():
        rows = "".join(f"| {title} | {text} |\n" for title, text in code.rows())
        sections.append(f"### {name}\n\n| {code.severity} | |\n| --- | --- |\n{rows}\n")
    mark, end = "<!-- codes -->\n", "<!-- /codes -->\n"
    return re.sub(
        f"({mark}).*?({end})", lambda marks: f"{marks[1]}\n{''.join(sections)}{marks[2]}", page, flags=re.DOTALL
    )


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
