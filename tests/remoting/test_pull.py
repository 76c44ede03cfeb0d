"""Pulls of a range: several at once, and an end at any time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from spark_mq.errors import RemotingError
from spark_mq.format.record import Record
from spark_mq.remoting.client import ClientSettings, RemotingClient
from spark_mq.remoting.codes import ResponseCode
from spark_mq.remoting.command import RemotingCommand
from spark_mq.remoting.pull import QueueRange, pull, pull_range
from tests.support.fake_server import response, serving

MESSAGES = 1000
MAGIC = Record(b"T").encode()[4:8]


def answer(request: RemotingCommand) -> Iterator[bytes]:
    """The ten messages from an offset on."""
    offset = int(request.ext_fields["queueOffset"])
    stop = min(offset + 10, MESSAGES)
    records = b"".join(Record(b"T", queue_offset=number).encode() for number in range(offset, stop))
    yield response(request, fields={"nextBeginOffset": str(stop), "minOffset": "0", "maxOffset": "1000"}, body=records)


def test_parts_follow_each_other_and_have_each_message_once() -> None:
    size = len(Record(b"T").encode())
    with serving(answer) as address, RemotingClient(ClientSettings((address,))) as client:
        parts = list(pull_range(client, QueueRange("b", address, "T", 0, 7, MESSAGES)))
    assert [part.start for part, _ in parts] == [7, *(part.stop for part, _ in parts[:-1])]
    assert parts[-1][0].stop == MESSAGES
    assert all(len(records) >= (part.stop - part.start) * size for part, records in parts)


def test_a_read_ends_although_an_answer_is_missing() -> None:
    def first_part(request: RemotingCommand) -> Iterator[bytes]:
        if int(request.ext_fields["queueOffset"]) < 32:
            yield from answer(request)

    with serving(first_part) as address, RemotingClient(ClientSettings((address,), 60)) as client:
        pulls = pull_range(client, QueueRange("b", address, "T", 0, 0, MESSAGES))
        next(pulls)
        ending = threading.Thread(target=pulls.close)
        ending.start()
        ending.join(30)
        assert not ending.is_alive()


def test_a_slave_that_leaves_messages_to_its_master() -> None:
    """It answers that there are messages, without them, and its next offset is after them."""

    def of_slave(request: RemotingCommand) -> Iterator[bytes]:
        offset = int(request.ext_fields["queueOffset"])
        if offset < 500:
            yield from answer(request)
            return
        fields = {"nextBeginOffset": str(offset + 10), "minOffset": "0", "maxOffset": "1000"}
        yield response(request, ResponseCode.PULL_RETRY_IMMEDIATELY, fields, remark="FOUND")

    with serving(of_slave) as slave, serving(answer) as master, RemotingClient(ClientSettings((master,))) as client:
        parts = list(pull_range(client, QueueRange("b", slave, "T", 0, 0, MESSAGES, master)))
        assert b"".join(records for _, records in parts).count(MAGIC) >= MESSAGES
        for unknown in ("", slave):
            with pytest.raises(RemotingError, match="was left to the master"):
                list(pull_range(client, QueueRange("b", slave, "T", 0, 0, MESSAGES, unknown)))


def test_a_slave_that_serves_no_pulls() -> None:
    def busy(request: RemotingCommand) -> Iterator[bytes]:
        yield response(request, ResponseCode.SYSTEM_BUSY, remark="[REJECTREQUEST]system busy")

    settings = ClientSettings(("127.0.0.1:1",), 0.1)
    with serving(busy) as slave, RemotingClient(settings) as client:
        with pytest.raises(RemotingError, match=r"SYSTEM_BUSY: .* slaveReadEnable is true"):
            pull(client, QueueRange("b", slave, "T", 0, 0, MESSAGES, "127.0.0.1:1"), 0)
        with pytest.raises(RemotingError, match=r"SYSTEM_BUSY: .*busy$"):
            pull(client, QueueRange("b", slave, "T", 0, 0, MESSAGES, slave), 0)
