"""The transactions of a store: what became of each half message.

How a broker keeps a transaction (`TransactionalMessageServiceImpl`, `EndTransactionProcessor`, both @4.9.7 and @5.3.3):

- A half message is stored in RMQ_SYS_TRANS_HALF_TOPIC, with the transaction type NONE. Its properties name the real
  topic and queue.
- A check of the producer first stores the half message again, with TRANSACTION_CHECK_TIMES one higher. Another copy,
  with TRAN_PREPARED_QUEUE_OFFSET, is stored while a message with CHECK_IMMUNITY_TIME_IN_SECONDS is too young for a
  check.
- A commit stores a message of type COMMIT in the real topic. Its `prepared_transaction_offset` is the commit log offset
  of the copy that was committed.
- After that, and also for a rollback, an op message names the queue offset of that copy (`outcomes`). So a copy that
  an op message names, and no commit, was rolled back.
- A half message that was checked too often, or is too old, is stored in TRANS_CHECK_MAX_TIME_TOPIC. That message names
  no offset; unique key, born time, born host, producer group and real topic together identify it. A copy that was made
  for a check can be discarded after the producer rolled back an older one: the transaction is rolled back.
- With transactions in RocksDB only, half messages are in `ROCKSDB_HALF_TOPIC`, once each: RocksDB has the number of
  checks. An op message has the commit log offset of its half message. If the broker gives up, the log does not show it.
- The offset of group CID_RMQ_SYS_TRANS in the half topic is after all copies about which the broker has decided.

All of these messages follow the half message in the log. So a half message whose log is whole from there on has a
certain state, however old it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.errors import OptionError
from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.arrow_array import timestamps
from spark_mq.format.broker_version import TRANSACTION_CHECK_IN_30_SECONDS, BrokerVersions
from spark_mq.format.message_schema import CORRUPT_RECORD
from spark_mq.format.system_topic import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    TRANS_OFFSET,
)
from spark_mq.lifecycle.message_arrays import (
    Groups,
    by_number,
    first_cases,
    flags,
    integers,
    lists,
    numbered,
    numbers,
    optional,
    positions_of,
)
from spark_mq.lifecycle.outcomes import (
    HALF_OFFSET,
    NOT_IN_LOG,
    REMOVE_TAG,
    TRANSACTION_GROUP,
    DecidedHalves,
    State,
    transaction_cases,
)
from spark_mq.lifecycle.selected_messages import (
    POSITION_COLUMNS,
    SOUND_COLUMNS,
    LogSource,
    ReadableLog,
    Selection,
    TopicRule,
    sound_messages,
)
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.message_store import MessageStore
from spark_mq.store.retention import reserved_time
from spark_mq.tables.lifecycle import TRANSACTIONS

CHECK, DISCARD = "CHECK", "DISCARD"

_NONE = -1
_HALF_TOPICS = (HALF_TOPIC, ROCKSDB_HALF_TOPIC)

RECORDS = Selection(
    TopicRule(names=frozenset({*_HALF_TOPICS, DISCARD_TOPIC}), transaction_types=frozenset({"COMMIT"})),
    (
        *POSITION_COLUMNS,
        *("born_timestamp_millis", "born_host", "store_timestamp_millis", "prepared_transaction_offset"),
    ),
    (
        *("REAL_TOPIC", "REAL_QID", "PGROUP", "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"),
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
    ),
)
"""The half messages, commits and discarded messages of a store."""

OPS = Selection(
    TopicRule(names=frozenset({OP_TOPIC, ROCKSDB_OP_TOPIC})),
    (
        "commit_log_offset",
        "topic",
        "queue_id",
        "tags",
        "body",
        "store_timestamp_millis",
        CORRUPT_RECORD,
        *SOUND_COLUMNS,
    ),
    (TRANS_OFFSET,),
    check_crc=True,
)
"""The op messages of a store."""
_LACKS_COPIES = (
    "older copies of the half message are not in the log, which begins at commit log offset {start}: one of them can "
    "have been committed"
)
_PASSED = (
    f"the offset of {TRANSACTION_GROUP} in consumerOffset.json is after the half message, but the log has no message "
    "that ended the transaction"
)
_AMBIGUOUS = (
    "several half messages have this unique key and were made at the same time, so it is not certain which messages "
    "belong to this one"
)


@dataclass(frozen=True)
class TransactionSettings:
    """The broker's settings for checks (`BrokerConfig`), in milliseconds."""

    timeout: int = 6_000
    check_interval: int = 30_000
    check_max: int = 15
    reserved: int = 72 * 3_600_000

    @classmethod
    def of(cls, conf: BrokerConf, versions: BrokerVersions) -> Self:
        """The settings of a broker, or the defaults of its version; the shorter time where versions differ."""

        def setting(name: str, default: int) -> int:
            text = conf.settings.get(name, str(default))
            if not text.isdecimal() or len(text) > 18:
                raise OptionError(f"{conf.source}: {name}={text!r} is not a number: a broker ignores it")
            return int(text)

        is_long = versions.decide(TRANSACTION_CHECK_IN_30_SECONDS) is False
        return cls(
            setting("transactionTimeOut", cls.timeout),
            setting("transactionCheckInterval", 60_000 if is_long else cls.check_interval),
            setting("transactionCheckMax", cls.check_max),
            int(reserved_time(None, conf).value * 3_600_000),
        )


def transaction_rows(
    store: MessageStore | LogSource, at: int | None = None, conf: BrokerConf | None = None
) -> pa.Table:
    """The rows of table `transactions`, by the first record that is left of each transaction.

    Ages refer to `at`, in milliseconds. The settings are those of `conf`, or of the store.
    """
    source = LogSource.of(store)
    moment = source.moment(at)
    settings = TransactionSettings.of(conf or source.conf, source.broker_versions)
    decided = DecidedHalves.of(source.location)  # before the log, which is then at least as new
    records, ops = source.selections_of(RECORDS, OPS)
    sound_records, bad_records = sound_messages(records)
    sound_ops, bad_ops = sound_messages(ops)
    found = TransactionRecords(sound_records, sound_ops, ReadableLog.of(records, *bad_records, *bad_ops))
    return transactions(found, decided, source.lost_end(records.newest_timestamp), settings, moment)


def transactions(
    found: TransactionRecords, decided: DecidedHalves, end_problem: str | None, settings: TransactionSettings, at: int
) -> pa.Table:
    """The transactions in the messages of a log; `transaction_rows` describes the table."""
    state, reason = _states(found, decided, end_problem)
    records, first, newest = found.records, found.first_record, found.newest_half
    some = records.take(pa.array(first))
    born, stored = integers(some["born_timestamp_millis"]), integers(records["store_timestamp_millis"])
    # The store time of the message that ended each transaction; any number for one that has not ended.
    is_committed, is_discarded = (flags(pc.equal(state, name)) for name in (State.COMMITTED, State.DISCARDED))
    ended = np.select([is_committed, is_discarded], [stored[found.commit], stored[found.discard]], found.last_op_time)
    is_pending = flags(pc.equal(state, State.PENDING))
    has_ended = ~is_pending & flags(pc.not_equal(state, State.UNKNOWN))
    in_rocksdb = found.has_half & found.in_rocksdb[newest]
    counted = np.where(found.has_half & ~in_rocksdb, newest, found.commit)
    checks = np.where(counted >= 0, found.checks[counted], _NONE)
    next_time, next_step = _next_step(found, settings, born, stored, checks)
    queue_id = numbers(some["REAL_QID"], 9, _NONE, _NONE)
    queue_id = np.where(found.is_commit[first] & (queue_id < 0), found.queue_id[first], queue_id)
    age = np.where(has_ended, ended, at) - born
    groups = found.groups
    columns = {
        "unique_key": some["unique_key"],
        "topic": found.real_topic.take(pa.array(first)),
        "queue_id": optional(queue_id, queue_id >= 0, pa.int32()),
        "producer_group": some["PGROUP"],
        "state": state,
        "reason": reason,
        "checks": optional(checks, checks >= 0, pa.int32()),
        "born_timestamp": timestamps(born),
        "end_timestamp": timestamps(ended, has_ended),
        "age_millis": optional(age, flags(pc.is_valid(timestamps(born)))),
        "next_check_timestamp": timestamps(next_time, is_pending),
        "next_step": pc.if_else(pa.array(is_pending), next_step, pa.scalar(None, pa.string())),
        "half_queue_id": optional(found.queue_id[newest], found.has_half, pa.int32()),
        "half_queue_offsets": groups.lists(found.halves, found.queue_offset),
        "half_offsets": groups.lists(found.halves, found.offset),
        "op_offsets": lists(*found.ops, groups.count),
        "commit_offsets": groups.lists(groups.members(found.is_commit), found.offset),
        "discard_offset": optional(found.offset[found.discard], found.discard >= 0),
    }
    return pa.table(columns, schema=TRANSACTIONS.schema)


def settled_halves(ops: pa.Table) -> pa.Table:
    """The half messages that op messages name, a row for each of them: the twin of `half_queue_offsets` for many.

    With transactions in RocksDB, `half_queue_offset` is a commit log offset, and `queue_id` is -1.
    """
    ops = ops.filter(pc.equal(ops["tags"], REMOVE_TAG)).combine_chunks()
    is_own = pc.equal(ops["topic"], OP_TOPIC)
    others, ops = ops.filter(pc.invert(is_own)).combine_chunks(), ops.filter(is_own).combine_chunks()
    lists = pc.split_pattern(ops["body"].cast(pa.large_binary()), pattern=b",").combine_chunks()
    pieces = pc.list_flatten(lists)
    is_offset = pc.match_substring_regex(pieces, f"^{HALF_OFFSET}$")
    owners = ops.take(pc.list_parent_indices(lists).filter(is_offset))
    texts = pc.replace_substring_regex(pieces.filter(is_offset).cast(pa.large_string()), r"^\+", "")
    names = ("op_offset", "queue_id", "half_queue_offset")
    in_queues = pa.table([owners["commit_log_offset"], owners["queue_id"], texts.cast(pa.int64())], names)
    half = numbers(others[TRANS_OFFSET], 18, _NONE, _NONE)
    queue_id = pa.repeat(pa.scalar(_NONE, pa.int32()), half.size)
    return pa.concat_tables([in_queues, pa.table([others["commit_log_offset"], queue_id, half], names)])


class TransactionRecords:
    """The records of each transaction: half messages, op messages, commits and discarded messages.

    Arrays with an element for each message: `offset`, `queue_id`, `queue_offset`, `is_half`, `is_discard`, `is_commit`.
    Arrays with an element for each transaction have numbers of messages: `first_record`, `first_half`, `newest_half`,
    `commit` and `discard`, the first of each, or -1. `halves` are the half messages in the order of transaction, queue
    id and queue offset.
    """

    def __init__(self, records: pa.Table, ops: pa.Table, log: ReadableLog) -> None:
        self.records = records = records.combine_chunks()
        self.log = log
        self.offset = integers(records["commit_log_offset"])
        self.queue_id, self.queue_offset = integers(records["queue_id"]), integers(records["queue_offset"])
        self.is_half = flags(pc.is_in(records["topic"], pa.array(_HALF_TOPICS)))
        self.in_rocksdb = flags(pc.equal(records["topic"], ROCKSDB_HALF_TOPIC))
        self.is_discard = flags(pc.equal(records["topic"], DISCARD_TOPIC))
        self.is_commit: Flags = ~self.is_half & ~self.is_discard
        own_topic = pc.if_else(pa.array(self.is_commit), records["topic"], pa.scalar(None, pa.string()))
        self.real_topic = pc.coalesce(records["REAL_TOPIC"], own_topic)
        self.checks = numbers(records["TRANSACTION_CHECK_TIMES"], 9, 0, _NONE)
        self.original = numbers(records["TRAN_PREPARED_QUEUE_OFFSET"], 18, _NONE, _NONE)
        never_checked = flags(pc.is_null(records["TRANSACTION_CHECK_TIMES"]))
        self.is_original: Flags = self.is_half & never_checked & (self.original == _NONE)
        self.is_ambiguous, number = self._numbers()
        self.groups = groups = Groups(number)
        halves = np.flatnonzero(self.is_half)
        self.halves: Int64s = halves[np.lexsort((self.queue_offset[halves], self.queue_id[halves], number[halves]))]
        self.first_half, self.newest_half = groups.first(self.halves), groups.last(self.halves)
        self.has_half: Flags = self.newest_half >= 0
        is_used = number >= 0
        self.first_record, self.commit, self.discard = (
            groups.first(np.flatnonzero(chosen & is_used)) for chosen in (is_used, self.is_commit, self.is_discard)
        )
        self._pair_ops(ops)

    def _numbers(self) -> tuple[Flags, Int64s]:
        """Which messages can be of several transactions; the number of each message's transaction, -1 for none.

        Messages with the same unique key, born time, born host, producer group and real topic are of one transaction.
        If several original half messages are the same in all that, each of them counts as a transaction, and only
        offsets say what belongs to it.
        """
        records, offset = self.records, self.offset
        key = records["unique_key"]
        no_key = np.where(flags(pc.is_null(key)), offset, _NONE)
        names = [key, records["born_timestamp_millis"], records["born_host"], records["PGROUP"], self.real_topic]
        group = numbered(*names, pa.array(no_key))
        is_ambiguous = (np.bincount(group[self.is_original], minlength=group.size + 1) > 1)[group]
        own = np.where(is_ambiguous, offset, _NONE)
        halves, commits = np.flatnonzero(self.is_half), np.flatnonzero(self.is_commit)
        prepared = integers(records["prepared_transaction_offset"])[commits]
        is_before: Flags = (prepared >= 0) & (prepared < offset[commits])
        half = np.append(halves, 0)[positions_of(prepared, offset[halves])]
        is_found = is_before & np.isin(prepared, offset[halves]) & (group[half] == group[commits])
        own[commits[is_found]] = own[half[is_found]]
        is_used = ~(self.is_discard & is_ambiguous)
        is_used[commits] &= is_found | is_before & ~self.log.is_readable(prepared)
        number = np.full(group.size, _NONE)
        if is_used.any():
            number[is_used] = numbered(pa.array(group[is_used]), pa.array(own[is_used]))
        return is_ambiguous, number

    def _pair_ops(self, ops: pa.Table) -> None:
        """Find the half message of each queue offset that an op message names: the newest one before the op message.

        `ops` are pairs of transaction and commit log offset of an op message, sorted; `last_op` is the last of these
        offsets for each transaction, and `last_op_time` its store time. `is_settled` is whether an op message names the
        newest copy, or the original of which it says that it is a copy.
        """
        settled = settled_halves(ops)
        named, named_queue = integers(settled["half_queue_offset"]), integers(settled["queue_id"])
        halves = self.halves
        stand_ins = halves[self.original[halves] >= 0]  # a copy stands for its original, which can have expired
        own_queue = np.where(self.in_rocksdb, _NONE, self.queue_id)
        own_offset = np.where(self.in_rocksdb, self.offset, self.queue_offset)
        queue = np.concatenate((own_queue[halves], own_queue[stand_ins], named_queue))
        offset = np.concatenate((own_offset[halves], self.original[stand_ins], named))
        time = np.concatenate((self.offset[halves], np.full(stand_ins.size, _NONE), integers(settled["op_offset"])))
        owner = np.concatenate((halves, stand_ins, np.full(named.size, _NONE)))
        order = np.lexsort((time, offset, queue))
        last = np.maximum.accumulate(np.where(owner[order] >= 0, np.arange(order.size), _NONE))
        mine = order[np.maximum(last, 0)]
        is_pair = (owner[order] < 0) & (last >= 0) & (queue[mine] == queue[order]) & (offset[mine] == offset[order])
        half, op_offset, op_named = owner[mine[is_pair]], time[order[is_pair]], offset[order[is_pair]]
        number, count = self.groups.number[half], self.groups.count
        order = np.lexsort((op_offset, number))
        owners, offsets = number[order], op_offset[order]
        is_other = (np.diff(owners, prepend=_NONE) != 0) | (np.diff(offsets, prepend=_NONE) != 0)
        self.ops: tuple[Int64s, Int64s] = (owners[is_other], offsets[is_other])
        self.last_op = np.full(count, _NONE)
        self.last_op[owners] = offsets  # the pairs ascend
        newest = self.newest_half[number]
        is_newest = (op_named == own_offset[newest]) | (op_named == self.original[newest])
        self.is_settled = np.isin(np.arange(count), number[is_newest])
        has_op = self.last_op >= 0
        places = np.searchsorted(integers(ops["commit_log_offset"]), self.last_op[has_op])
        self.last_op_time = np.zeros(count, np.int64)
        self.last_op_time[has_op] = integers(ops["store_timestamp_millis"])[places]


def _states(found: TransactionRecords, decided: DecidedHalves, end_problem: str | None) -> tuple[pa.Array, pa.Array]:
    log, newest, has_half = found.log, found.newest_half, found.has_half
    first_offset, newest_offset = found.offset[found.first_half], found.offset[newest]
    lacks_copies = has_half & ~np.isin(np.arange(newest.size), found.groups.number[found.is_original])
    # The broker stores no op message when it gives up: one that names any copy tells that the producer decided.
    is_rolled_back = has_half & (found.is_settled | ((found.last_op >= 0) & (found.discard >= 0)))
    is_damaged = np.where(
        is_rolled_back, log.is_damaged_between(first_offset, found.last_op), log.is_damaged_after(newest_offset)
    )
    damage = log.damage_reasons(
        "a message that ended the transaction can have been in a damaged range",
        np.where(is_rolled_back, first_offset, newest_offset),
    )
    offset_of_group = by_number(found.queue_id[newest], decided.offsets, _NONE)
    in_rocksdb = has_half & found.in_rocksdb[newest]
    is_passed = ~in_rocksdb & (found.queue_offset[newest] < offset_of_group)
    undecided = f"how far the broker has decided: {decided.problem}"
    cases = transaction_cases(
        is_committed=found.commit >= 0,
        is_discarded=(found.discard >= 0) & ~is_rolled_back,
        is_rolled_back=is_rolled_back,
        damage=(is_damaged, damage),
        lacks_copies=(lacks_copies, _LACKS_COPIES.format(start=log.log.start)),
        ambiguous=(is_passed & found.is_ambiguous[newest], _AMBIGUOUS),
        passed=(is_passed, _PASSED),
        lost_end=(in_rocksdb | (end_problem is not None), end_problem or NOT_IN_LOG),
        not_read=(decided.problem is not None, undecided),
        asks_again=found.last_op >= 0,
    )
    return first_cases(cases)


def _next_step(
    found: TransactionRecords, settings: TransactionSettings, born: Int64s, stored: Int64s, checks: Int64s
) -> tuple[Int64s, pa.Array]:
    """The earliest time of the broker's next step, and the step (`TransactionalMessageServiceImpl.check`@5.3.3).

    `born` and `checks` are of transactions, `stored` of messages.
    """
    newest = found.newest_half
    seconds = numbers(found.records["CHECK_IMMUNITY_TIME_IN_SECONDS"], 9, _NONE, _NONE)[newest]
    immune = np.where(seconds == _NONE, settings.timeout, seconds * 1000)
    is_copy = ~found.is_original[newest]
    next_round = stored[newest] + np.where(is_copy, settings.check_interval, 0)
    time = np.maximum(born + immune, next_round)
    is_last = checks >= settings.check_max
    is_old = time - born > settings.reserved
    time = np.where(is_last, next_round, np.where(is_old, np.maximum(born + settings.reserved, next_round), time))
    step = pa.array([CHECK, DISCARD]).take(pa.array((is_last | is_old).astype(np.int8)))
    return time, step
