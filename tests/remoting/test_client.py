"""The client against servers that answer late, in another order, not at all, or with bytes that are no answer."""

from __future__ import annotations

import itertools
import random
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_mq.errors import OptionError, ProtocolError, RefusedError, RemotingError
from spark_mq.remoting.access import Tls
from spark_mq.remoting.client import ClientSettings, RemotingClient, parse_name_servers
from spark_mq.remoting.codes import RequestCode, ResponseCode
from spark_mq.remoting.command import RemotingCommand, encode
from spark_mq.remoting.requests import find_brokers, max_offset, queue_ends
from tests.support.fake_server import response, serving

CODE = RequestCode.GET_MAX_OFFSET


def client(*name_servers: str, timeout: float = 5.0) -> RemotingClient:
    return RemotingClient(ClientSettings(name_servers or ("127.0.0.1:1",), timeout))


def test_responses_find_their_requests_in_any_order() -> None:
    waiting: list[RemotingCommand] = []

    def answer(request: RemotingCommand) -> Iterator[bytes]:
        waiting.append(request)
        if len(waiting) == 3:
            yield from (response(one, body=one.ext_fields["n"].encode()) for one in reversed(waiting))

    with serving(answer) as address, client() as opened:
        sent = [opened.send(address, CODE, {"n": number}) for number in range(3)]
        assert [one.result(5).body for one in sent] == [b"0", b"1", b"2"]


def test_a_response_in_single_bytes_is_whole() -> None:
    def answer(request: RemotingCommand) -> Iterator[bytes]:
        frame = response(request, fields={"offset": "7"})
        yield from (frame[number : number + 1] for number in range(len(frame)))

    with serving(answer) as address, client() as opened:
        assert max_offset(opened, address, "T", 0) == 7


def test_requests_of_one_kind_are_sent_together() -> None:
    waiting: list[RemotingCommand] = []

    def answer(request: RemotingCommand) -> Iterator[bytes]:
        waiting.append(request)
        if len(waiting) == 64:
            some, waiting[:] = list(reversed(waiting)), []
            yield from (response(one, fields={"offset": one.ext_fields["queueId"]}) for one in some)

    with serving(answer) as address, client() as opened:
        queues = [("T", number) for number in range(128)]
        assert queue_ends(opened, address, queues) == [(number, number) for number in range(128)]


@pytest.mark.parametrize("harm", ["closed", "silent", "busy"])
def test_requests_that_fail_are_sent_again(harm: str) -> None:
    numbers = itertools.count()

    def answer(request: RemotingCommand) -> Iterator[bytes]:
        if next(numbers) not in (3, 100, 240):
            yield response(request, fields={"offset": request.ext_fields["queueId"]})
        elif harm == "closed":
            raise ConnectionError
        elif harm == "busy":
            yield response(request, ResponseCode.SYSTEM_BUSY)

    with serving(answer) as address, client(timeout=0.3) as opened:
        queues = [("T", number) for number in range(150)]
        assert queue_ends(opened, address, queues) == [(number, number) for number in range(150)]
    assert next(numbers) > 300


def test_responses_of_any_size_that_arrive_together_are_whole() -> None:
    choice = random.Random(7)
    waiting: list[RemotingCommand] = []
    sizes = [choice.choice((0, 1, 5000, 262_000, 600_000)) + choice.randrange(90) for _ in range(60)]

    def answer(request: RemotingCommand) -> Iterator[bytes]:
        waiting.append(request)
        if len(waiting) == len(sizes):
            data = b"".join(response(one, body=bytes([number]) * sizes[number]) for number, one in enumerate(waiting))
            while data:
                size = choice.choice((3, 100, 70_000, 900_000))
                yield data[:size]
                data = data[size:]

    with serving(answer) as address, client() as opened:
        sent = [opened.send(address, CODE, {}) for _ in sizes]
        for number, one in enumerate(sent):
            assert one.result(30).body == bytes([number]) * sizes[number]


def test_requests_to_a_client_and_unknown_opaques_are_skipped() -> None:
    def answer(request: RemotingCommand) -> Iterator[bytes]:
        yield encode(RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, opaque=request.opaque))
        yield response(RemotingCommand(0, opaque=request.opaque + 1000), body=b"another")
        yield response(request, body=b"this")

    with serving(answer) as address, client() as opened:
        assert opened.request(address, CODE).body == b"this"


def test_no_answer_within_the_time_names_address_and_request() -> None:
    with (
        serving(lambda request: ()) as address,
        client(timeout=0.1) as opened,
        pytest.raises(RemotingError, match=rf"{address}.*GET_MAX_OFFSET.*0\.1 seconds"),
    ):
        opened.request(address, CODE)


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">i", (1 << 31) - 1), struct.pack(">iI", 8, 5 << 24) + bytes(4)],
    ids=["http", "huge", "kind"],
)
def test_bytes_that_are_no_frame_name_address_and_request(data: bytes) -> None:
    with (
        serving(lambda request: [data]) as address,
        client() as opened,
        pytest.raises(ProtocolError, match=rf"{address}.*GET_MAX_OFFSET"),
    ):
        opened.request(address, CODE)


def test_a_connection_that_ends_within_an_answer_is_made_again() -> None:
    answers = iter([3, 40, None])

    def answer(request: RemotingCommand) -> Iterator[bytes]:
        cut = next(answers)
        yield response(request, body=bytes(100))[:cut]
        if cut is not None:
            raise ConnectionError

    with serving(answer) as address, client() as opened:
        assert opened.request(address, CODE).body == bytes(100)


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.GO_AWAY])
def test_a_busy_broker_is_asked_again(code: ResponseCode) -> None:
    codes = iter([code, ResponseCode.SUCCESS])
    with serving(lambda request: [response(request, next(codes))]) as address, client() as opened:
        assert opened.request(address, CODE).code == ResponseCode.SUCCESS


def test_a_refusal_names_address_request_and_reason() -> None:
    def answer(request: RemotingCommand) -> list[bytes]:
        return [response(request, ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")]

    with (
        serving(answer) as address,
        client() as opened,
        pytest.raises(RefusedError, match=rf"{address}: GET_MAX_OFFSET.*TOPIC_NOT_EXIST: no such topic") as caught,
    ):
        opened.request(address, CODE)
    assert caught.value.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("fields", [{}, {"offset": ""}, {"offset": "x"}, {"offset": "9" * 30}])
def test_an_answer_without_its_field_is_a_protocol_error(fields: dict[str, str]) -> None:
    with (
        serving(lambda request: [response(request, fields=fields)]) as address,
        client() as opened,
        pytest.raises(ProtocolError, match=rf"{address}.*GET_MAX_OFFSET.*offset"),
    ):
        max_offset(opened, address, "T", 0)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"brokerAddrTable":{"a":1}}', b'{"brokerAddrTable":{"a":{}}}'])
def test_an_answer_with_another_body_is_a_protocol_error(body: bytes) -> None:
    with (
        serving(lambda request: [response(request, body=body)]) as address,
        client(address) as opened,
        pytest.raises(ProtocolError, match="GET_BROKER_CLUSTER_INFO"),
    ):
        find_brokers(opened)


def test_a_broker_in_the_place_of_a_name_server_is_named() -> None:
    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    with (
        serving(lambda request: [response(request, code)]) as address,
        client(address) as opened,
        pytest.raises(RemotingError, match=rf"{address} is not a name server, perhaps a broker"),
    ):
        find_brokers(opened)


def test_the_second_name_server_answers_if_the_first_does_not_run() -> None:
    addresses = b'{0:"1.2.3.4:10911",1:"1.2.3.5:10911"}'
    body = b'{"brokerAddrTable":{"a":{"brokerAddrs":%b,"brokerName":"a","cluster":"c"}}}' % addresses
    with serving(lambda request: [response(request, body=body)]) as address, client("127.0.0.1:1", address) as opened:
        (broker,) = find_brokers(opened)
    assert (broker.cluster, broker.address(), broker.address(from_slave=True)) == (
        "c",
        "1.2.3.4:10911",
        "1.2.3.5:10911",
    )


def test_a_name_server_that_does_not_answer_does_not_use_up_the_patience() -> None:
    asked: list[RemotingCommand] = []

    def busy(request: RemotingCommand) -> list[bytes]:
        asked.append(request)
        return [response(request, ResponseCode.SYSTEM_BUSY)]

    with serving(busy) as first, serving(lambda request: [response(request, body=b"{}")]) as second:
        for _ in range(3):
            with RemotingClient(ClientSettings((first, second), patience=60.0)) as opened:
                assert find_brokers(opened) == []
        assert len(asked) == 1  # the other one is asked first from then on
        with (
            pytest.raises(RemotingError, match=f"no name server of {first} answers: .*SYSTEM_BUSY"),
            client(first) as one,
        ):
            find_brokers(one)


def test_a_server_that_ends_the_connection_before_any_answer_may_take_only_tls() -> None:
    numbers = itertools.count()

    def answer(request: RemotingCommand) -> Iterator[bytes]:
        if next(numbers):
            raise ConnectionError
        yield response(request, fields={"offset": "7"})

    with serving(answer) as address, client() as opened:
        assert opened.send(address, CODE, {}).result(5).ext_fields["offset"] == "7"
        with pytest.raises(RemotingError, match=r"closed it$"):
            opened.send(address, CODE, {}).result(5)
        with pytest.raises(RemotingError, match=r"closed it\. If it takes only TLS, give tls=true$"):
            opened.send(address, CODE, {}).result(5)


def test_an_address_that_cannot_be_reached_is_explained_if_a_broker_registered_it() -> None:
    with client("127.0.0.1:1") as opened:
        with pytest.raises(RemotingError, match=r"^127\.0\.0\.1:1: no connection: .* refused$"):
            opened.connection("127.0.0.1:1")
        with pytest.raises(RemotingError, match=r"^127\.0\.0\.1:2: no connection: .* refused\. A broker .*brokerIP1"):
            opened.connection("127.0.0.1:2")


def test_all_waiting_requests_fail_when_the_connection_ends() -> None:
    arrived = threading.Event()

    def answer(request: RemotingCommand) -> Iterator[bytes]:
        if request.ext_fields["n"] == "2":
            arrived.set()
            raise ConnectionError
        yield b""

    with serving(answer) as address, client() as opened:
        sent = [opened.send(address, CODE, {"n": number}) for number in range(3)]
        assert arrived.wait(5)
        for one in sent:
            assert isinstance(one.exception(5), RemotingError)


def test_a_server_that_takes_no_bytes_does_not_hold_up_a_request() -> None:
    def answer(request: RemotingCommand) -> Iterator[bytes]:
        time.sleep(3)
        yield b""

    with serving(answer) as address, client(timeout=0.3) as opened:
        opened.send(address, CODE, {})
        connection = opened.connection(address)
        with pytest.raises(RemotingError, match="takes no bytes"):
            connection.send(RemotingCommand(CODE, body=bytes(15 << 20)))
        assert not connection.is_open


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("rocketmq://a", ("a:9876",)),
        ("rocketmq://a:1,b:2/", ("a:1", "b:2")),
        ("rocketmq://a;b:2", ("a:9876", "b:2")),
        ("rocketmq://[::1]:5,[::2]", ("[::1]:5", "[::2]:9876")),
    ],
)
def test_addresses_of_name_servers(text: str, servers: tuple[str, ...]) -> None:
    assert parse_name_servers(text) == servers


@pytest.mark.parametrize(
    "text", ["rocketmq://", "rocketmq://,", "rocketmq://a:b", "rocketmq://a:0", "rocketmq://a:70000"]
)
def test_what_is_no_address_is_an_option_error(text: str) -> None:
    with pytest.raises(OptionError):
        parse_name_servers(text)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(OptionError, match="accessKey and secretKey") as error:
        parse_name_servers("rocketmq://user:se@cret@a:1,b")
    assert "cret@" not in str(error.value)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_key_with_a_password_is_an_error_and_nobody_is_asked(tmp_path: Path) -> None:
    certificate, key = str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem")
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=client"]
    made = [*words, "-passout", "pass:secret", "-keyout", key, "-out", certificate]
    subprocess.run(made, check=True, capture_output=True)
    with pytest.raises(OptionError, match=r"key\.pem: the key has a password; .* writes it without one"):
        Tls(certificate=certificate, key=key, verifies=False).context()
