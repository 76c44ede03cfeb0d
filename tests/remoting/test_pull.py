"""Pulls of a range: several at once, and an end at any time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from spark_mq.errors import RemotingError
from spark_mq.format.record import Record, decode_record
from spark_mq.remoting import client as client_module
from spark_mq.remoting import pull as pull_module
from spark_mq.remoting.client import ClientSettings, RemotingClient
from spark_mq.remoting.codes import ResponseCode
from spark_mq.remoting.command import RemotingCommand
from spark_mq.remoting.pull import QueueRange, Rate, pull, pull_range
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

    settings = ClientSettings(("127.0.0.1:1",), 5)
    with serving(busy) as slave, RemotingClient(settings) as client:
        with pytest.raises(RemotingError, match=r"SYSTEM_BUSY: .* slaveReadEnable is true"):
            pull(client, QueueRange("b", slave, "T", 0, 0, MESSAGES, "127.0.0.1:1"), 0)
        with pytest.raises(RemotingError, match=r"SYSTEM_BUSY: .*busy$"):
            pull(client, QueueRange("b", slave, "T", 0, 0, MESSAGES, slave), 0)


@pytest.mark.parametrize("at_once", [1, 3])
def test_no_more_pulls_than_allowed_are_without_an_answer(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_ATTEMPTS", 1)
    asked: list[int] = []

    def first_answers(request: RemotingCommand) -> Iterator[bytes]:
        offset = int(request.ext_fields["queueOffset"])
        if offset < 32:
            yield from answer(request)
        else:
            asked.append(offset)

    with (
        serving(first_answers) as address,
        RemotingClient(ClientSettings((address,), 0.3)) as client,
        pytest.raises(RemotingError, match=rf"{address}: PULL_MESSAGE was not answered"),
    ):
        list(pull_range(client, QueueRange("b", address, "T", 0, 0, 1 << 20), at_once=at_once))
    assert asked == [*(32 + 16 * 32 * number for number in range(at_once)), 32]


@pytest.mark.parametrize("harm", ["closed", "silent", "refused", "garbage"])
def test_a_part_goes_on_after_a_connection_that_ends(harm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_module, "_MAX_PART", 150)
    harms = iter(range(60))

    def harmed(request: RemotingCommand) -> Iterator[bytes]:
        if next(harms, 0) % 20 != 19:
            yield from answer(request)
        elif harm == "closed":
            raise ConnectionError
        elif harm == "refused":
            yield response(request, code=2)  # SYSTEM_BUSY
        elif harm == "garbage":
            yield b"HTTP/1.1 400 Bad Request"

    with serving(harmed) as address, RemotingClient(ClientSettings((address,), 0.3)) as client:
        parts = list(pull_range(client, QueueRange("b", address, "T", 0, 0, MESSAGES), at_once=3))
    assert [part.start for part, _ in parts] == [0, *(part.stop for part, _ in parts[:-1])]
    assert parts[-1][0].stop == MESSAGES
    offsets = [offset for part, records in parts for offset in queue_offsets(records) if offset < part.stop]
    assert offsets == list(range(MESSAGES))
    assert len(parts) > 6
    assert next(harms, None) is None


def queue_offsets(records: bytes) -> Iterator[int]:
    while records:
        record = decode_record(records)
        yield record.queue_offset
        records = records[record.size :]


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_bytes_of_a_second_are_limited_also_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, size, limit = Clock(), len(Record(b"T").encode()), 20_000
    monkeypatch.setattr(pull_module, "time", clock)
    asked: list[tuple[float, int]] = []

    def noted(request: RemotingCommand) -> Iterator[bytes]:
        asked.append((clock.now, 10 * size))
        yield from answer(request)

    with serving(noted) as address, RemotingClient(ClientSettings((address,))) as client:
        rate = Rate(limit)
        for queue_id in range(3):  # three ranges of a task
            queue = QueueRange("b", address, "T", queue_id, 0, MESSAGES)
            for number, _ in enumerate(pull_range(client, queue, at_once=1, rate=rate)):
                if number == 9:
                    clock.now += 100  # Spark does something else
    assert clock.now - 1300 > 3 * MESSAGES * size / limit * 0.8
    part = 2 * 40 * size  # the first part of a range has an unknown size
    for number, (start, _) in enumerate(asked):
        for length in (0.5, 1.0, 5.0):
            pulled = sum(size for at, size in asked[number:] if at < start + length)
            assert pulled <= limit * (length + 0.25) + part
