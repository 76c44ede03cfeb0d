"""All codes of findings, in one table: what a code means, how it comes about, what brokers do with it, and the remedy.

`spark-mq verify --explain CODE` and the page `docs/verify.md` are made from this table. The severity of a code never
changes:

- `note`: worth knowing; a store with nothing else is sound.
- `warning`: some broker, or some tool, gives wrong or fewer results than the log has.
- `error`: a message is lost, damaged or not found, or a broker does not start.

What brokers do was read in the source of Apache RocketMQ; STORE_FORMAT names classes and tags.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How grave a finding is, the gravest last."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Brokers:
    """What brokers of three release ranges do with a finding, a sentence each."""

    v4_9: str
    v5_0: str
    v5_3_2: str

    @classmethod
    def all(cls, text: str) -> Brokers:
        """The same for all brokers."""
        return cls(text, text, text)


@dataclass(frozen=True)
class Code:
    """One kind of finding.

    Attributes:
        severity: `note`, `warning` or `error`.
        cause: How it comes about.
    """

    name: str
    severity: Severity
    meaning: str
    cause: str
    brokers: Brokers
    remedy: str

    def explain(self) -> str:
        """The whole entry of the table, as lines for a terminal."""
        lines = [
            f"{self.name} ({self.severity})",
            f"  meaning         {self.meaning}",
            f"  how             {self.cause}",
        ]
        if len({self.brokers.v4_9, self.brokers.v5_0, self.brokers.v5_3_2}) == 1:
            lines.append(f"  brokers         {self.brokers.v4_9}")
        else:
            lines += [
                f"  broker of 4.9   {self.brokers.v4_9}",
                f"  of 5.0 to 5.3.1  {self.brokers.v5_0}",
                f"  of 5.3.2 on     {self.brokers.v5_3_2}",
            ]
        return "\n".join([*lines, f"  do              {self.remedy}"])


_NOTE, _WARNING, _ERROR = Severity.NOTE, Severity.WARNING, Severity.ERROR

_DAMAGED_MEDIUM = "a damaged disk or memory, an interrupted copy, or a program that wrote into the file"
_REPAIR = "`spark-mq repair STORE --apply`"
_MADE_AGAIN = f"{_REPAIR} makes the file again from the log"
_EXT_AGAIN = (
    "`spark-mq rebuild` with the broker's settings (--broker-conf, enableConsumeQueueExt) makes `consumequeue` and "
    "`consumequeue_ext` again"
)
_REPLICA = "copy the segment from a replica; without one, the message is lost"
_REFUSES = Brokers.all("the broker does not start: it reports that the length of the file does not match")
_FINDS_LESS = Brokers.all("a query by key does not find the messages, or finds others; consumers are not affected")
_SERVES = Brokers.all("the broker does not notice it, and serves the message as it is")

_CODES = (
    # records
    Code(
        "RECORD_BODY_CRC",
        _ERROR,
        "The body of a message is not the body whose CRC the record has.",
        _DAMAGED_MEDIUM,
        Brokers.all(
            "a recovery that reads this record cuts the log before it: all later messages are lost; else it is served, "
            "and the client refuses it"
        ),
        f"before the next boot: {_REPLICA}",
    ),
    Code(
        "RECORD_CRC",
        _ERROR,
        "The record is not the record whose CRC its property __CRC32# has.",
        f"{_DAMAGED_MEDIUM}; or the message was forwarded with its properties to a broker without enabledAppendPropCRC",
        Brokers(
            "the broker does not know this property",
            "from 5.2.0 on with forceVerifyPropCRC, a recovery cuts the log before the record; else nothing",
            "with forceVerifyPropCRC, a recovery cuts the log before the record; else nothing",
        ),
        _REPLICA,
    ),
    Code(
        "RECORD_PROPERTIES",
        _WARNING,
        "A part of the properties has no name, or no separator between name and value.",
        _DAMAGED_MEDIUM,
        Brokers.all("the broker and its clients ignore the part: a tag, a key or another property can be missing"),
        _REPLICA,
    ),
    Code(
        "RECORD_SYS_FLAG",
        _WARNING,
        "sysFlag has bits that no broker knows.",
        f"{_DAMAGED_MEDIUM}; or a broker later than 5.3.3",
        _SERVES,
        _REPLICA,
    ),
    Code(
        "RECORD_COMPRESSION",
        _WARNING,
        "sysFlag says that the body is compressed, and the body does not begin as such a body does.",
        f"{_DAMAGED_MEDIUM}; or a producer that set the bit itself",
        Brokers.all("the broker serves the message; the client cannot decompress it"),
        _REPLICA,
    ),
    Code(
        "RECORD_QUEUE_OFFSET",
        _ERROR,
        "The queue offset of a message is negative or impossibly large.",
        _DAMAGED_MEDIUM,
        Brokers.all("when it is dispatched, the message gets no unit, or the next position of its queue"),
        _REPLICA,
    ),
    Code(
        "RECORD_TIME_BACK",
        _NOTE,
        "The store time of a message is up to a minute before that of the message before it.",
        "the clock of the broker was set back",
        Brokers.all("searches by time can miss by as much"),
        "nothing",
    ),
    Code(
        "RECORD_TIME_FAR_BACK",
        _WARNING,
        "The store time of a message is more than a minute before that of the message before it.",
        f"the clock of the broker was set back by that much; or {_DAMAGED_MEDIUM} changed one of the two times",
        Brokers.all(
            "searches by time can miss messages; a recovery after a crash can choose another segment to start from"
        ),
        "if only one record has a time of its own, copy the segment from a replica; otherwise nothing",
    ),
    # the log
    Code(
        "LOG_CORRUPT",
        _ERROR,
        "Bytes of the log are not a record.",
        _DAMAGED_MEDIUM,
        Brokers.all(
            "a recovery that reads these bytes ends the log before them: all later messages are lost; it takes a "
            "record that only states another commit log offset for a message. A broker that does not read them answers "
            "pulls of these messages with nothing, or with an error"
        ),
        "before the next boot: copy the segment from a replica; `spark-mq rebuild --mode permissive` keeps the rest "
        "reachable",
    ),
    Code(
        "LOG_STALE_TAIL",
        _WARNING,
        "After the live end of the log there are old records, whole and with the right offset.",
        "a recovery cut the log and did not clear the bytes after the cut; the messages since are shorter",
        Brokers(
            "a clean boot can take them for live ones, if they follow the live end without a gap",
            "a clean boot can take them for live ones, if they follow the live end without a gap",
            "a clean boot can take them for live ones, and dispatches them, if they follow the live end without a gap",
        ),
        f"{_REPAIR} fills the bytes after the live end with zeros",
    ),
    Code(
        "LOG_UNFINISHED",
        _NOTE,
        "After the live end of the log there are bytes that are not a whole record.",
        "a broker is writing a record, or was killed while it did, or a recovery cut the log in the middle of a record",
        Brokers.all("the broker overwrites them"),
        "nothing; if consume queues have units after the live end (QUEUE_UNIT_STALE), the last messages are lost",
    ),
    Code(
        "SEGMENT_FILLER",
        _ERROR,
        "A segment does not end with its filler: from some offset on, it has neither records nor the filler.",
        f"{_DAMAGED_MEDIUM}; or the log ended here once, and the next segment is of another time",
        Brokers.all("a recovery that reads this segment ends the log here, and deletes the segments after it"),
        "before the next boot: copy the segment from a replica",
    ),
    Code(
        "SEGMENT_SIZE",
        _ERROR,
        "A segment has another size than mappedFileSizeCommitLog, or than the other segments.",
        "a copy was cut, or the setting was changed",
        _REFUSES,
        "copy the segment again; if the setting was changed, change it back",
    ),
    Code(
        "SEGMENT_EMPTY",
        _WARNING,
        "A file of commitlog/ has no bytes.",
        "the disk was full, or the machine failed, when the broker created the file",
        Brokers(
            "the broker does not start",
            "before 5.1.3 the broker does not start; from 5.1.3 on it deletes the file if it is the last one",
            "the broker deletes the file if it is the last one, else it does not start",
        ),
        f"{_REPAIR} moves the file away if it is the last one; otherwise copy it from a replica",
    ),
    Code(
        "SEGMENT_GAP",
        _ERROR,
        "No segment contains these bytes of the log.",
        "a file was removed or not copied",
        Brokers.all("the broker starts, and logs a warning; messages in the gap are lost, and pulls of them fail"),
        "copy the segment from a replica; `spark-mq rebuild --mode permissive` keeps the rest reachable",
    ),
    Code(
        "LOG_BEFORE_START",
        _NOTE,
        "Queues or index files have messages that are before the first segment.",
        "the messages expired; or the first segments were removed or not copied, which looks the same",
        Brokers.all("these messages cannot be read; queues begin at the first message of the log"),
        "nothing, if the messages expired; otherwise copy the segments from a replica",
    ),
    Code(
        "SEGMENT_STRAY",
        _ERROR,
        "A file has the name of a segment, and is not a segment of this log.",
        "a copy under another name, or a file of another store",
        Brokers.all("the broker takes it for a segment; if it is the last one, it writes the next messages there"),
        f"{_REPAIR} moves it into a backup",
    ),
    Code(
        "FOLDER_STRAY_FILE",
        _ERROR,
        "A folder of segments or of queue files contains a file that the broker did not make.",
        "an editor, a copy that was interrupted, or a backup beside the files",
        _REFUSES,
        f"{_REPAIR} moves it into a backup",
    ),
    Code(
        "FOLDER_SUBFOLDER",
        _WARNING,
        "A folder of segments, queue files or index files contains another folder.",
        "a backup beside the files, or lost+found if the folder is a filesystem of its own",
        Brokers(
            "the broker does not start",
            "before 5.1.0 the broker does not start; from 5.1.0 on it skips the folder, but not one in index/",
            "the broker skips the folder; if it is in index/, the broker does not start",
        ),
        f"{_REPAIR} moves it into a backup",
    ),
    Code(
        "NOT_A_FILE",
        _ERROR,
        "A named pipe, a device, a socket, a folder or a broken link has the name of a file that the broker opens.",
        "a copy of a tree with links, or a command that named a file of the store as its output",
        Brokers.all("the broker does not start, waits for ever, or takes it for an empty file"),
        "move it away",
    ),
    # consume queues
    Code(
        "QUEUE_UNIT_WRONG",
        _ERROR,
        "The unit of a message differs from what the log says: offset, size or tags code.",
        _DAMAGED_MEDIUM,
        Brokers.all("consumers do not get the message, or get other bytes, or a tag filter leaves it out"),
        _MADE_AGAIN,
    ),
    Code(
        "QUEUE_UNIT_MISPLACED",
        _ERROR,
        "A queue offset has the unit of another message of the same queue: units are shifted, swapped or doubled.",
        "a boot of 5.3.2 or 5.3.3 with a queue that lagged; or a broker closed a gap of the queue",
        Brokers.all(
            "consumers get the message under another queue offset than the record has; committed offsets mean other "
            "messages than before"
        ),
        f"{_MADE_AGAIN}; consumers that committed offsets since then can skip or repeat messages",
    ),
    Code(
        "QUEUE_UNIT_MISSING",
        _ERROR,
        "A message has no unit, and later messages of the queue have.",
        f"{_DAMAGED_MEDIUM}; or a file of the queue was lost",
        Brokers.all("consumers never get the message; a recovery can take the place for the end of the queue"),
        _MADE_AGAIN,
    ),
    Code(
        "QUEUE_UNIT_EXTRA",
        _ERROR,
        "A unit points into the live log, and the log has no such message of the queue.",
        f"{_DAMAGED_MEDIUM}; or units of records that a recovery cut off, whose place has other messages now",
        Brokers.all("the broker counts the unit: the queue looks longer, and consumers get other bytes or nothing"),
        _MADE_AGAIN,
    ),
    Code(
        "QUEUE_UNIT_STALE",
        _WARNING,
        "A unit after the end of the queue points to the live end of the log, or after it.",
        "a recovery cut the log and did not clear the units; or the last records of the log are damaged or lost",
        Brokers.all("the next boot cuts the unit; the broker overwrites it"),
        "nothing, if a recovery cut the log; else look for a newer copy of the segment: the messages are lost; "
        f"{_MADE_AGAIN}",
    ),
    Code(
        "QUEUE_NO_MESSAGE",
        _WARNING,
        "A queue offset between two messages of the queue has no message in the log.",
        "a part of the log is damaged or missing, see LOG_CORRUPT and SEGMENT_GAP",
        Brokers.all("consumers skip the offset, or stop there until the next boot"),
        "as for the damage of the log",
    ),
    Code(
        "QUEUE_LEFT_OUT",
        _NOTE,
        "A queue offset between two messages of the queue has no message, and its unit says so.",
        "the store was restored without this message (`spark-mq restore --where`)",
        Brokers.all("consumers skip the offset"),
        "nothing",
    ),
    Code(
        "QUEUE_OFFSET_TWICE",
        _WARNING,
        "Messages have a queue offset that an earlier message of the queue has.",
        "the topic was deleted and created again; or a broker started with a queue whose end it did not know",
        Brokers.all(
            "the queue has one of the messages; a rebuild of the queue, by a broker too, takes the earlier one"
        ),
        "nothing, if the topic was created again, but do not rebuild the queue; else send the messages again",
    ),
    Code(
        "QUEUE_PRE_BLANK",
        _ERROR,
        "A unit before the first message of a queue is neither pre-blank nor the unit of an expired message.",
        _DAMAGED_MEDIUM,
        Brokers.all("zeros end the queue for a recovery; other units count as messages"),
        _MADE_AGAIN,
    ),
    Code(
        "QUEUE_EXPIRED_ORDER",
        _WARNING,
        "Units of expired messages are not in the order of the log.",
        _DAMAGED_MEDIUM,
        Brokers.all("the broker does not offer these units"),
        "nothing: the messages are gone",
    ),
    Code(
        "QUEUE_DUE_TIME",
        _WARNING,
        "The due time of a delayed message is not its store time plus the delay of its level.",
        "messageDelayLevel is another than the setting that was used here, or was changed; or the unit is damaged",
        Brokers.all("the message is delivered at the time in the unit"),
        f"give --broker-conf with messageDelayLevel; if the setting was right, {_MADE_AGAIN}",
    ),
    Code(
        "QUEUE_EXT_MISSING",
        _WARNING,
        "The tags code of a unit is an address in `consumequeue_ext`, and no extension unit is there.",
        "the folder was not copied, or lost its end; the broker keeps it less carefully than the queues",
        Brokers.all(
            "the message is sent to every subscription, whose client filters by tag; SQL92 expressions are evaluated "
            "without the bit map; a delayed message is due by its level"
        ),
        f"{_REPAIR} writes the tags code itself into the unit, as without enableConsumeQueueExt",
    ),
    Code(
        "QUEUE_EXT_TIME",
        _WARNING,
        "The store time in an extension unit is not that of its message.",
        _DAMAGED_MEDIUM,
        Brokers.all(
            "a time that is too late makes the broker believe the bits of a group that subscribed after the message"
        ),
        _EXT_AGAIN,
    ),
    Code(
        "QUEUE_EXT_BITS",
        _NOTE,
        "An extension unit lacks the bits of a group whose SQL92 filter is TRUE, and is older than the message.",
        "`config/consumerFilter.json` is older than the log, so the group had another filter; or the unit is damaged",
        Brokers.all("with the filters of the file, the broker does not send the message to the group"),
        _EXT_AGAIN,
    ),
    Code(
        "QUEUE_LAGS",
        _WARNING,
        "The last messages of a queue have no units, and the broker did not stop cleanly, or runs.",
        "a broker was killed before it dispatched its last messages",
        Brokers.all("the next boot dispatches again what is after the segment that the checkpoint selects, not all"),
        f"if `spark-mq check STORE` says yes, start the broker: it completes the queue; else {_REPAIR}",
    ),
    Code(
        "QUEUE_LAGS_CLEAN",
        _ERROR,
        "The last messages of a queue have no units, although the broker stopped cleanly.",
        "a recovery or a copy lost the end of a queue file; or the file `abort` was removed by hand",
        Brokers(
            "the next boot dispatches those after the end of all queues; the others are never consumed",
            "the messages stay without units, and are never consumed",
            "the next boot loses one message of the queue, and shifts every later unit by one",
        ),
        f"before the next boot: {_REPAIR}",
    ),
    Code(
        "QUEUE_MISSING",
        _ERROR,
        "A queue has messages in the log, and no units: it has no files, or only zeros are in them.",
        "the folder was removed or not copied, or its files were cleared",
        Brokers(
            "a clean boot dispatches the messages again if every queue lags as far; an unclean one those after the "
            "segment that the checkpoint selects; the others are never consumed",
            "a clean boot leaves the queue empty; an unclean one dispatches the messages after the segment that the "
            "checkpoint selects; the others are never consumed",
            "a clean boot leaves the queue empty unless no queue has files; an unclean one dispatches the messages "
            "after the segment that the checkpoint selects; the others are never consumed",
        ),
        f"before the next boot: {_REPAIR}",
    ),
    Code(
        "QUEUE_DELETED",
        _NOTE,
        "The log has messages of a queue that are older than all its units; or of a queue without files, of a topic "
        "that is not configured.",
        "the topic was deleted, and perhaps created again; its messages stay in the log until they expire",
        Brokers.all("the messages are not consumed"),
        "nothing; if the topic was not deleted, treat it as QUEUE_MISSING",
    ),
    Code(
        "QUEUE_FILE_SIZE",
        _ERROR,
        "A queue file has another size than mappedFileSizeConsumeQueue, or than the other files.",
        "a copy was cut, or the setting was changed",
        _REFUSES,
        f"{_MADE_AGAIN}; if the setting was changed, change it back",
    ),
    Code(
        "QUEUE_FILE_NAME",
        _ERROR,
        "The name of a queue file is not a multiple of the size of queue files.",
        "the file was renamed, or the setting mappedFileSizeConsumeQueue was changed",
        Brokers.all("the broker looks for units in the wrong file"),
        _MADE_AGAIN,
    ),
    Code(
        "QUEUE_FILE_MISSING",
        _ERROR,
        "A queue has files before and after this file, which does not exist.",
        "the file was removed or not copied",
        Brokers.all("consumers do not get the messages of the file"),
        _MADE_AGAIN,
    ),
    Code(
        "TOPIC_NAME",
        _ERROR,
        "The topic of a message cannot be the name of a folder.",
        _DAMAGED_MEDIUM,
        Brokers.all("the broker creates the queue in another folder, or fails when it dispatches the message"),
        _REPLICA,
    ),
    Code(
        "NOT_CHECKED",
        _NOTE,
        "A part of the store is of a kind that is not checked.",
        "light message queues, other queues of INNER_MULTI_DISPATCH, compacted copies, RocksDB, or index entries "
        "for the tags of a few messages that an older broker can have dispatched",
        Brokers.all("nothing"),
        "nothing",
    ),
    # the index
    Code(
        "INDEX_FILE_SIZE",
        _WARNING,
        "An index file has another size than its slots and entries take.",
        "a copy was cut, or maxHashSlotNum or maxIndexNum was changed",
        Brokers.all("the broker extends a short file with zeros, and reads entries at the wrong places"),
        _MADE_AGAIN,
    ),
    Code(
        "INDEX_HEADER",
        _WARNING,
        "The header of an index file contradicts its entries.",
        f"{_DAMAGED_MEDIUM}; or a crash of the machine",
        Brokers.all("queries by key with a time leave the file out, or read it in vain; expiry can delete it early"),
        _MADE_AGAIN,
    ),
    Code(
        "INDEX_COUNT",
        _ERROR,
        "The header of an index file counts more or fewer entries than the file has.",
        f"{_DAMAGED_MEDIUM}; or a crash of the machine",
        Brokers.all("queries by key do not find entries after the count; new entries overwrite them"),
        _MADE_AGAIN,
    ),
    Code(
        "INDEX_SLOT",
        _ERROR,
        "A slot of an index file does not lead to the newest entry with its hash.",
        _DAMAGED_MEDIUM,
        _FINDS_LESS,
        _MADE_AGAIN,
    ),
    Code(
        "INDEX_CHAIN",
        _ERROR,
        "An entry of an index file does not lead to the entry of its slot before it.",
        _DAMAGED_MEDIUM,
        _FINDS_LESS,
        _MADE_AGAIN,
    ),
    Code(
        "INDEX_ENTRY_WRONG",
        _ERROR,
        "An entry of an index file has another key hash or offset than the messages of the log have at its place.",
        _DAMAGED_MEDIUM,
        _FINDS_LESS,
        _MADE_AGAIN,
    ),
    Code(
        "INDEX_NO_MESSAGE",
        _WARNING,
        "An index entry points into a part of the log that is damaged or missing.",
        "see LOG_CORRUPT, SEGMENT_FILLER and SEGMENT_GAP",
        Brokers.all("a query by key skips the entry, or fails"),
        "as for the damage of the log",
    ),
    Code(
        "INDEX_TIME",
        _WARNING,
        "The time of an index entry is not the store time of its message.",
        _DAMAGED_MEDIUM,
        Brokers.all("a query by key with a time does not find the message, or ends its search too early"),
        _MADE_AGAIN,
    ),
    Code(
        "INDEX_ENTRY_MISSING",
        _ERROR,
        "Keys of messages have no entry, and keys of later messages have.",
        "an index file was lost; or an unclean boot deleted it and dispatched only newer segments again",
        _FINDS_LESS,
        _MADE_AGAIN,
    ),
    Code(
        "INDEX_ENTRY_TWICE",
        _NOTE,
        "A key of a message has more entries than the message has such keys.",
        "a recovery put the keys of the last message again",
        Brokers.all("a query by key can count the message twice against its limit"),
        "nothing",
    ),
    Code(
        "INDEX_ENTRY_STALE",
        _WARNING,
        "An index entry points to the live end of the log, or after it.",
        "a recovery cut the log; or the last records of the log are damaged or lost",
        Brokers.all("a query by key skips the entry, or finds the message that is later written there"),
        f"nothing, if a recovery cut the log; {_MADE_AGAIN}",
    ),
    Code(
        "INDEX_AFTER_END",
        _WARNING,
        "An index file has bytes after its last entry.",
        f"{_DAMAGED_MEDIUM}",
        Brokers.all("the broker overwrites them"),
        _MADE_AGAIN,
    ),
    Code(
        "INDEX_ORDER",
        _WARNING,
        "The names of index files are not in the order of their entries.",
        "the clock or the time zone of the broker was set back; or a rebuild named files in another zone",
        Brokers.all(
            "after the next boot, the broker continues the file with the largest name, which is not the newest one"
        ),
        f"{_REPAIR} makes files whose names are in order",
    ),
    Code(
        "INDEX_LAGS",
        _WARNING,
        "The keys of the last messages have no entries.",
        "a broker was killed before it dispatched its last messages; or the last index file was lost",
        Brokers(
            "an unclean boot puts the entries again; a clean one does so only if the queues lag as far",
            "an unclean boot puts the entries again; a clean one never",
            "an unclean boot puts the entries again; a clean one does so only if the queues lag as far",
        ),
        _REPAIR,
    ),
    Code(
        "INDEX_MISSING",
        _WARNING,
        "Messages have keys, and the store has no index file.",
        "index/ was removed or not copied; or the broker has messageIndexEnable=false",
        Brokers.all("a query by key finds nothing; a clean boot does not build the index"),
        f"{_REPAIR} with --broker-conf, which tells slots and entries; or give one with messageIndexEnable=false",
    ),
    # the rest
    Code(
        "ABORT",
        _NOTE,
        "The file `abort` exists: a broker runs on the store, or did not stop cleanly.",
        "kill -9, a crash, or a broker that runs",
        Brokers.all("the next boot checks the log from a segment that the checkpoint selects, and dispatches it again"),
        "nothing: the file is needed for a correct boot",
    ),
    Code(
        "CHECKPOINT_SIZE",
        _WARNING,
        "The file `checkpoint` has another size than 4096 bytes.",
        "a copy was cut",
        Brokers.all("the broker extends a short file with zeros: a recovery then starts at the first segment"),
        f"{_REPAIR}; or remove the file: a recovery then starts at the first segment, which is safe",
    ),
    Code(
        "CHECKPOINT_AHEAD",
        _WARNING,
        "A time in the file `checkpoint` is later than the last message or index file.",
        "the end of the log was lost after it was flushed; or a recovery cut the log; or the file is damaged",
        Brokers.all("after a crash, a recovery can start too late, and leave queues and index incomplete"),
        f"find out whether the last messages were lost; {_REPAIR} sets the time to that of the last message",
    ),
    Code(
        "CONFIG_BROKEN",
        _ERROR,
        "A file of config/ cannot be read, nor can its .bak.",
        "a crash while the broker wrote it, or an editor",
        Brokers.all("the broker does not start"),
        "put a readable copy in its place, or remove it with its .bak",
    ),
    Code(
        "CONFIG_FROM_BACKUP",
        _WARNING,
        "A file of config/ cannot be read, and its .bak can.",
        "a crash while the broker wrote it, or an editor",
        Brokers.all("the broker uses the .bak, which is the content before the last change"),
        f"{_REPAIR} copies the .bak over the file",
    ),
    Code(
        "OFFSET_PAST_END",
        _WARNING,
        "A consumer group's offset is past the end of its queue.",
        "the queue lost its end, or the offset file is of another store",
        Brokers.all("the broker tells the consumer to go to the end, or to the start, of the queue"),
        "find out whether messages were lost; `mqadmin resetOffsetByTime` sets the group back",
    ),
    Code(
        "OFFSET_BEFORE_MIN",
        _NOTE,
        "A consumer group's offset is before the first message of its queue.",
        "the messages expired before the group consumed them",
        Brokers.all("the consumer continues at the first message"),
        "nothing",
    ),
    Code(
        "DELAY_OFFSET_PAST_END",
        _WARNING,
        "The offset of a delay level is past the end of its queue.",
        "the queue of the level lost its end, or the offset file is of another store",
        Brokers.all("delayed messages of the level are delivered late or never, until the queue reaches the offset"),
        "set the offset in config/delayOffset.json to the end of the queue while the broker is stopped",
    ),
    Code(
        "TOPIC_NOT_CONFIGURED",
        _NOTE,
        "A topic has messages, and config/topics.json does not name it.",
        "topics.json was lost or is of another store; or the topic was deleted, and its files were not yet",
        Brokers.all("pulls answer TOPIC_NOT_EXIST; from 5.x on, the broker can delete the queues of such a topic"),
        "create the topic with mqadmin updateTopic",
    ),
)

_BY_NAME = {code.name: code for code in _CODES}


def code_of(name: str) -> Code:
    """The code with this name. Raises `KeyError` if there is none."""
    return _BY_NAME[name]


def all_codes() -> Iterator[Code]:
    """All codes, in the order of the table: the log, queues, the index, the rest."""
    return iter(_CODES)
