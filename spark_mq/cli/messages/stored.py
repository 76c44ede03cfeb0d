"""The messages of store directories, with the look-ups of `ArchivedMessages`: commands ask any source in one way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from heapq import merge
from typing import TYPE_CHECKING

from spark_mq.cli.messages.message_filter import MessageFilter, Selection, why_no_unique_key
from spark_mq.cli.output import say
from spark_mq.format.dispatch import KeyType, record_keys
from spark_mq.format.message_id import has_plausible_port, is_offset_message_id
from spark_mq.format.record import Record
from spark_mq.io.s3 import shown
from spark_mq.store.config.named_stores import NamedRecord
from spark_mq.store.log.record_lookup import NoRecord
from spark_mq.store.log.scan import InQueue
from spark_mq.store.message_selection import FollowedLog, find_unique_key, select_messages, uncovered_parts

if TYPE_CHECKING:
    from spark_mq.cli.several_stores import CommandStore
    from spark_mq.lifecycle.life.situation import Situations
    from spark_mq.store.message_store import MessageStore

_MAX_UNCOVERED = 256 << 20
"""Bytes of the log that are read for a unique key, if no index file covers them: a second or two."""


class StoredMessages:
    """The messages of opened stores: of one in the order of its log, of several by their store times.

    Messages of a topic are those that match a filter; `on_damage` gets a line for each damaged part of a log.
    """

    def __init__(
        self,
        stores: Sequence[tuple[CommandStore, MessageStore]],
        message_filter: MessageFilter | None = None,
        on_damage: Callable[[str], None] = lambda line: None,
        follows: bool = False,
    ) -> None:
        """With `follows`, the messages that come later than this are told by `new_messages`."""
        self._stores = stores
        self._selections = [Selection(message_filter or MessageFilter(), on_damage) for _ in stores]
        self._reasons: list[str] = []
        self._followed: FollowedLog | None = None
        self._end = stores[0][1].get_max_phy_offset() if follows else -1

    @property
    def index_problems(self) -> list[str]:
        """The damage of index files that look-ups of keys noticed."""
        return [problem for _, store in self._stores for problem in store.index.problems]

    def of_each(self, find: Callable[[MessageStore], Iterable[Record]]) -> Iterator[NamedRecord]:
        """What is found in each store, newest first there and here."""
        return self._merged([find(store) for _, store in self._stores], newest_first=True)

    def with_key(
        self,
        key: str,
        topic: str | None = None,
        is_unique: bool = False,
        begin: int | None = None,
        end: int | None = None,
    ) -> Iterator[NamedRecord]:
        """The messages that have a key, newest first; without a topic it is a unique key."""

        def find(store: MessageStore) -> Iterable[Record]:
            if topic is None:
                return find_unique_key(store, key)
            found = store.find_messages(topic, key, begin=begin, end=end)
            return (one for one in found if not is_unique or record_keys(one).get(key) == KeyType.UNIQ_KEY)

        return self.of_each(find)

    def with_key_or_id(self, key: str, topic: str | None, any_host: bool) -> Iterator[NamedRecord]:
        """The messages with a unique key or an offset message id, newest first."""

        def find(store: MessageStore) -> Iterable[Record]:
            if topic is not None:
                return store.find_by_unique_key(topic, key, any_host)
            record = store.find_record_by_id(key, any_host) if is_offset_message_id(key) else None
            return [record] if isinstance(record, Record) else find_unique_key(store, key)

        return self.of_each(find)

    def with_id(self, offset_message_id: str, any_host: bool = False) -> Iterator[NamedRecord]:
        """The messages that have an offset message id; `why_nothing` says why a store has none."""
        self._reasons = []
        for number, (of, store) in enumerate(self._stores):
            record = store.find_record_by_id(offset_message_id, any_host)
            if isinstance(record, NoRecord):
                self._reasons.append(of.say(str(record)))
            else:
                yield self._named(number, record)

    def with_key_for_id(self, text: str) -> Iterator[NamedRecord]:
        """The newest message of each store that has a text as its unique key, which seemed to be an offset message id.

        A line says that it is one; `why_nothing` says why a store has none.
        """
        self._reasons = self._reasons if has_plausible_port(text) else []
        for number, (of, store) in enumerate(self._stores if not has_plausible_port(text) else ()):
            by_unique_key = f"spark-mq query-by-unique-key {shown(of.path)} {text}"
            if sum(part.size for part in uncovered_parts(store)) > _MAX_UNCOVERED:
                why = f"it looks like a unique key: `{by_unique_key}` finds it, and may read the whole log for it"
                self._reasons.append(of.say(why))
            elif found := find_unique_key(store, text):
                more = f" of {len(found)} messages; this is the newest; `{by_unique_key}` prints all"
                say(f"{text} is not an offset message id, but a unique key{more if len(found) > 1 else ''}")
                yield self._named(number, found[0])
            else:
                why = f"it looks like a unique key, but {why_no_unique_key(store, None, text)}"
                self._reasons.append(of.say(why))

    def of_topic(
        self,
        topic: str,
        queue_id: int | None = None,
        queue_offset: int | None = None,
        begin: int | None = None,
        end: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[NamedRecord]:
        """The messages of a topic that match the filter; no look-up of a queue offset."""
        from spark_mq.source.topic_messages import topic_messages  # look-ups of keys need none of what it loads

        sources = []
        for (_, store), selection in zip(self._stores, self._selections, strict=True):
            if queue_id is None:
                parts = topic_messages(store, topic, begin, end, newest_first)
            else:
                parts = select_messages(store, topic, queue_id, begin, end, newest_first)
            sources.append(selection.of(parts))
        self._followed = FollowedLog(self._stores[0][1].location, InQueue(topic, queue_id), self._end)
        return self._merged(sources, newest_first)

    def new_messages(self) -> Iterator[NamedRecord]:
        """The messages that were stored since the start, or since the last call, of the topic of `of_topic`."""
        assert self._followed is not None
        return (self._named(0, record) for record in self._selections[0].of(self._followed.new_parts()))

    def situations(self, names: tuple[str, str, str]) -> Situations:
        """What records of the store with these names mean."""
        of, store = next(one for number, one in enumerate(self._stores) if self._names(number) == names)
        return of.situations(store)

    def why_nothing(self, topic: str | None = None, **_: object) -> str:
        """Why a look-up found no message, as text for a person; empty if there is nothing to say."""
        return "; ".join(self._reasons) if topic is None else self._stores[0][1].why_no_topic(topic) or ""

    def why(self, ask: Callable[[MessageStore, Selection], str]) -> str:
        """Why no store has such a message, as text for a person."""
        asked = zip(self._stores, self._selections, strict=True)
        return "; ".join(of.say(ask(store, selection)) for (of, store), selection in asked)

    def _names(self, number: int) -> tuple[str, str, str]:
        of = self._stores[number][0]
        return ("", "", of.path) if of.named is None else of.named.names

    def _named(self, number: int, record: Record) -> NamedRecord:
        return NamedRecord(self._names(number), record)

    def _merged(self, sources: Sequence[Iterable[Record]], newest_first: bool) -> Iterator[NamedRecord]:
        named = [map(partial(self._named, number), source) for number, source in enumerate(sources)]
        if len(named) == 1:
            return named[0]
        sign = -1 if newest_first else 1
        return merge(*named, key=lambda one: sign * one.record.store_timestamp)
