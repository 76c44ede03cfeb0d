"""Everything that can be asked of a store, by name: each table, each look-up, and what a boot does. No Spark."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_mq.errors import SparkMqError
from spark_mq.lifecycle.life.life import life
from spark_mq.store.message_store import MessageStore
from spark_mq.store.recovery import next_recovery
from spark_mq.store.store_state import store_state
from spark_mq.tables.all_tables import TABLES
from tests.support.in_process import read_table
from tests.support.stores import RealStore, index_keys

NOW = 1_800_000_000_000
"""The time of all questions that depend on it, in milliseconds."""
_KEYS = 12
_IDS = 12


@dataclass(frozen=True)
class Questions:
    """What is asked of a store: facts of some of its messages, spread over the log."""

    conf: str
    version: str
    ids: Sequence[str]
    keys: Sequence[tuple[str, str]]
    queues: Sequence[tuple[str, int]]
    times: Sequence[int]

    @classmethod
    def of(cls, store: RealStore) -> Questions:
        facts = store.facts("msg")
        keyed = [(fact["topic"], key) for fact in facts for key in sorted(index_keys(fact))]
        return cls(
            str(store.broker_conf),
            {"4.9": "4.9.7", "5": "5.3.3"}.get(store.broker_version, store.broker_version),
            [fact["msgId"] for fact in facts[:: len(facts) // _IDS]],
            keyed[:: len(keyed) // _KEYS],
            sorted({(fact["topic"], fact["queueId"]) for fact in facts if fact["sysFlag"] & 0xC not in (0x4, 0xC)}),
            [facts[len(facts) // 3]["storeTimestamp"], facts[-1]["storeTimestamp"]],
        )


Door = Callable[[MessageStore, Questions], object]


def _by_id(store: MessageStore, asked: Questions) -> object:
    return [store.look_message_by_id(one) for one in asked.ids]


def _by_key(store: MessageStore, asked: Questions) -> object:
    return [store.query_message(*one) for one in asked.keys[:4]]


def _by_keys(store: MessageStore, asked: Questions) -> object:
    topics, keys = zip(*asked.keys, strict=True)
    batches = store.query_messages(pa.table({"topic": topics, "key": keys}))
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: (row["key"], str(row)))


def _as_broker(store: MessageStore, asked: Questions) -> object:
    return [store.query_message_as_broker(*one) for one in asked.keys[4:8]]


def _by_unique_key(store: MessageStore, asked: Questions) -> object:
    return [store.query_message_by_unique_key(*one) for one in asked.keys[8:]]


def _by_queue(store: MessageStore, asked: Questions, read_log: bool) -> object:
    queues = asked.queues[1 :: 4 if read_log else 1]
    results = [store.get_message_result(*queue, 0, 2000, read_log=read_log) for queue in queues]
    return [(str(result.status), result.messages) for result in results]


def _ends(store: MessageStore, asked: Questions, read_log: bool) -> object:
    ends, queues = (store.get_min_offset_in_queue, store.get_max_offset_in_queue), asked.queues[:: 4 if read_log else 1]
    return [tuple(end(*queue, read_log=read_log) for end in ends) for queue in queues]


def _by_time(store: MessageStore, asked: Questions, read_log: bool) -> object:
    find = store.get_offset_in_queue_by_time
    return [find(*queue, time, read_log=read_log) for queue in asked.queues[::4] for time in asked.times]


def _life(store: MessageStore, asked: Questions) -> object:
    return [life(store, key, at=NOW).to_dict() for _, key in asked.keys[2:6]]


def _recover(store: MessageStore, asked: Questions) -> object:
    return repr(next_recovery(str(store.location), asked.version, asked.conf))


def _state(store: MessageStore, asked: Questions, full: bool) -> object:
    state = store_state(str(store.location), asked.version, asked.conf, full=full)
    return repr(replace(state, disk=(), config=()))  # what the machine has


def _table(store: MessageStore, asked: Questions, name: str) -> object:
    table = TABLES[name]
    if table.rows:
        given = {"at": NOW} if any(option.name == "at" for option in table.options) else {}
        return table.read(store, given)
    options = {"brokerConf": asked.conf} if any(option.name == "brokerConf" for option in table.options) else {}
    return read_table(path=str(store.location), table=name, **options)


def _of_topic(store: MessageStore, asked: Questions) -> object:
    topics = sorted({topic for topic, _ in asked.queues})[::3]
    return [read_table(path=str(store.location), brokerConf=asked.conf, topic=topic) for topic in topics]


def _in_time(store: MessageStore, asked: Questions) -> object:
    first, last = map(str, asked.times)
    return read_table(path=str(store.location), brokerConf=asked.conf, startTimestamp=first, endTimestamp=last)


def _log(store: MessageStore, _: Questions) -> object:
    return store.get_min_phy_offset(), store.get_max_phy_offset()


DOORS: Mapping[str, Door] = {
    **{name: partial(_table, name=name) for name in TABLES if not name.startswith("tiered")},
    "log ends": _log,
    "messages of a topic": _of_topic,
    "messages in a time": _in_time,
    "by id": _by_id,
    "by key": _by_key,
    "by keys": _by_keys,
    "as broker": _as_broker,
    "by unique key": _by_unique_key,
    "life": _life,
    "recover": _recover,
    "state": partial(_state, full=False),
    "state --full": partial(_state, full=True),
    **{
        f"{name}, {'log' if read_log else 'units'}": partial(door, read_log=read_log)
        for name, door in (("by queue", _by_queue), ("queue ends", _ends), ("by time", _by_time))
        for read_log in (False, True)
    },
}


def answer(door: str, store: MessageStore, asked: Questions) -> object:
    """What a door says of an opened store, without its path; an error of the package is an answer, too."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = DOORS[door](store, asked)
    except SparkMqError as error:
        found = type(error).__name__, str(error)
    return _without(str(store.location), found)


def ask(door: str, path: Path, asked: Questions) -> object:
    """The same of a store that is opened for this question alone."""
    try:
        with MessageStore(str(path), asked.version, asked.conf) as store:
            return answer(door, store, asked)
    except SparkMqError as error:
        return _without(str(path), (type(error).__name__, str(error)))


def with_rows(found: Any) -> Any:
    """An answer in which rows are in the place of tables."""
    if isinstance(found, pa.Table):
        return found.to_pylist()
    return type(found)(map(with_rows, found)) if isinstance(found, list | tuple) else found


def _without(path: str, found: Any) -> Any:
    """An answer in whose texts the path of the store is `STORE`."""
    return _replaced(path, found) if path.encode() in pickle.dumps(found) else found


def _replaced(path: str, found: Any) -> Any:
    if isinstance(found, pa.Table):
        return pa.Table.from_pylist(_replaced(path, found.to_pylist()), found.schema)
    if isinstance(found, str):
        return found.replace(path, "STORE")
    if isinstance(found, list | tuple):
        return type(found)(_replaced(path, one) for one in found)
    if isinstance(found, dict):
        return {name: _replaced(path, one) for name, one in found.items()}
    return found
