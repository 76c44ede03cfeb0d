"""Parts of a queue whose messages expire while they are read."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from spark_mq.errors import DataLossError
from spark_mq.format.record import Record
from spark_mq.live import look_ups
from spark_mq.live.look_ups import read_range, records_of_range
from spark_mq.live.messages import _of_range
from spark_mq.live.options import parse_live_options
from spark_mq.remoting.client import RemotingClient
from spark_mq.remoting.codes import RequestCode, ResponseCode
from spark_mq.remoting.command import RemotingCommand
from spark_mq.remoting.pull import QueueRange, Subscription
from tests.support.fake_server import response, serving

MESSAGES = 400
GAP = range(250, 260)
"""Offsets that have no message, as in a compacted topic."""


@dataclass
class ExpiringQueue:
    """A queue as a broker hands it out (`DefaultMessageStore.getMessage`, `getEarliestMessageTime`@5.3.3)."""

    first_in_log: int = 0
    first_of_queue: int = 0
    deleted: int = 0
    """Messages that the log loses before the first pull at offset 64 or after it."""
    corrected_after: int = 2
    """Questions for the earliest message until the queue has its right first offset."""
    without: frozenset[int] = frozenset()
    asked: list[RequestCode] = field(default_factory=list)

    def answer(self, request: RemotingCommand) -> Iterator[bytes]:
        code = RequestCode(request.code)
        self.asked.append(code)
        if code == RequestCode.GET_MIN_OFFSET:
            yield response(request, fields={"offset": str(self.first_of_queue)})
        elif code == RequestCode.GET_EARLIEST_MSG_STORETIME:
            is_there = self.first_of_queue >= self.first_in_log
            self.corrected_after -= 1
            if not self.corrected_after:
                self.first_of_queue = self.first_in_log
            yield response(request, fields={"timestamp": "1790000000000" if is_there else "-1"})
        else:
            yield self._pulled(request)

    def _pulled(self, request: RemotingCommand) -> bytes:
        offset = int(request.ext_fields["queueOffset"])
        if offset >= 64:
            self.first_in_log = max(self.first_in_log, self.deleted)
        ends = {"minOffset": str(self.first_of_queue), "maxOffset": str(MESSAGES)}
        if offset < self.first_of_queue:
            fields = ends | {"nextBeginOffset": str(self.first_of_queue)}
            return response(request, ResponseCode.PULL_OFFSET_MOVED, fields, remark="OFFSET_TOO_SMALL")
        there = [one for one in range(max(offset, self.first_in_log), MESSAGES) if one not in self.without][:32]
        body = b"".join(Record(b"T", queue_offset=one).encode() for one in there)
        fields = ends | {"nextBeginOffset": str(there[-1] + 1)}
        return response(request, fields=fields, body=body, remark="FOUND")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_ups, "_WAIT_SECONDS", 0)


def read(of: ExpiringQueue, subscription: str = "*", **options: str) -> list[int]:
    """The queue offsets that are read, up to an error."""
    given = parse_live_options({"path": "rocketmq://127.0.0.1", "topic": "T", "pullsAtOnce": "1"} | options)
    with serving(of.answer) as address, RemotingClient(given.client) as client:
        queue = QueueRange("b", address, "T", 0, 0, MESSAGES)
        parts = read_range(client, queue, Subscription(subscription), given, records_of_range)
        return [record.queue_offset for part in parts for record in part]


def test_messages_that_a_broker_skips_while_it_deletes_files_are_an_error() -> None:
    with pytest.raises(DataLossError, match=r"queue T/0 of broker b: up to 136 messages expired .* failOnDataLoss="):
        read(ExpiringQueue(deleted=200))


def test_messages_that_a_broker_skips_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        offsets = read(ExpiringQueue(deleted=200), failOnDataLoss="false")
    assert offsets == [*range(64), *range(200, MESSAGES)]
    assert "queue T/0 of broker b: up to 136 messages expired" in caplog.text


def test_a_broker_that_corrects_no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataLossError, match="up to 136 messages"):
        read(ExpiringQueue(deleted=200, corrected_after=1 << 30))


@pytest.mark.parametrize("subscription", ["*", "paid"])
def test_offsets_without_a_message_are_no_loss(subscription: str) -> None:
    queue = ExpiringQueue(without=frozenset(GAP))
    assert read(queue, subscription) == [one for one in range(MESSAGES) if one not in GAP]
    asked = [one for one in queue.asked if one != RequestCode.PULL_MESSAGE]
    assert asked == [RequestCode.GET_MIN_OFFSET, RequestCode.GET_EARLIEST_MSG_STORETIME]


def test_a_queue_without_gaps_needs_no_other_requests() -> None:
    queue = ExpiringQueue()
    assert read(queue) == list(range(MESSAGES))
    assert set(queue.asked) == {RequestCode.PULL_MESSAGE}


@pytest.mark.parametrize("offsets", [[], [5, 6, 7], [5, 9, 12, 19, 20, 30]])
def test_both_readers_know_the_offsets_of_a_part(offsets: Sequence[int]) -> None:
    part = QueueRange("b", "a:1", "T", 0, 5, 20)
    records = b"".join(Record(b"T", queue_offset=one).encode() for one in offsets)
    (_, frames), found = _of_range(records, part)
    kept, plain = records_of_range(records, part)
    assert list(found) == plain == [one for one in offsets if one < 20]
    assert frames.size == len(kept) == len(plain)
    assert np.asarray(found).dtype == np.int64
