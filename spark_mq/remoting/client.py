"""A client of name servers and brokers: a TCP connection to each address, time-outs, and what is sent again."""

from __future__ import annotations

import itertools
import random
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Self, TypeVar

from spark_mq.errors import OptionError, ProtocolError, RefusedError, RemotingError
from spark_mq.remoting.access import RIGHTS, Credentials, Tls
from spark_mq.remoting.codes import RequestCode, ResponseCode
from spark_mq.remoting.command import RemotingCommand, SerializeType, checked_length, decode, encode
from spark_mq.tables.table import LIVE_SCHEME

_BUFFER_SIZE = 256 << 10
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
PULL_GROUP = "TOOLS_CONSUMER"
"""A consumer group that every broker has, and that no consumer uses (`MixAll.TOOLS_CONSUMER_GROUP`)."""
_ATTEMPTS = 4
_FIRST_PAUSE, _MAX_PAUSE = 0.1, 2.0
"""Seconds before a request is sent again, less a random part; twice as many before each further time."""
BUSY = (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL, ResponseCode.GO_AWAY)
"""Answers after which the same request can succeed."""
_ANSWERED: dict[tuple[str, ...], str] = {}
"""The name server that answered last, by all of a cluster: this process asks it first."""
_TOGETHER = 64
"""Requests of one kind that are sent together."""
_MAX_SHOWN = 1000
_NO_ACCESS = "no permission to access"
"""In the remark of a broker with ACL 2.0, which names the topic or group, and not the right."""
_T = TypeVar("_T")


def parse_address(address: str) -> tuple[str, int]:
    """The host and the port of `host:port` or `[IPv6 address]:port`. Raises `OptionError` for another text."""
    host, colon, port = address.strip().rpartition(":")
    try:
        host.encode("idna")  # as `socket` does
        is_host = bool(host)
    except UnicodeError:
        is_host = False
    if not colon or not is_host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise OptionError(f"{address!r} is not an address HOST:PORT, such as 10.0.0.1:9876")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Connection:
    """A connection. Several threads may send requests; each response finds its request by `opaque`."""

    def __init__(self, address: str, timeout: float, tls: ssl.SSLContext | None = None) -> None:
        """Connect. Within `timeout` seconds the connection must be there, and each request must have left."""
        self.address = address
        self._opaques = itertools.count(1)
        self._waiting: dict[int, Future[RemotingCommand]] = {}
        self._state = threading.Lock()
        self._sending = threading.Lock()
        self._using = threading.Lock()  # TLS cannot send and receive at the same time
        self._error: RemotingError | None = None
        try:
            plain = socket.create_connection(parse_address(address), timeout)
        except OSError as error:
            raise RemotingError(f"{address}: no connection: {error}") from error
        try:
            self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=parse_address(address)[0])
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            plain.close()
            raise RemotingError(
                f"{address}: no TLS connection: {error}. Does the broker use TLS, and is its certificate trusted?"
            ) from error
        self._socket.setblocking(False)
        self._timeout = timeout
        self._held: list[bytes] = []
        """Requests of the thread that reads, which are sent together."""
        self._reader = threading.Thread(target=self._read_all, name=f"remoting {address}", daemon=True)
        self._reader.start()

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._error is None

    def send(self, command: RemotingCommand) -> Future[RemotingCommand]:
        """Send a request; returns its response, which comes later, or fails with a `RemotingError`."""
        opaque = next(self._opaques) & 0x7FFFFFFF
        frame = encode(command, opaque)
        response: Future[RemotingCommand] = Future()
        with self._state:
            if self._error is not None:
                raise self._error
            self._waiting[opaque] = response
        if threading.current_thread() is self._reader:
            self._held.append(frame)
        else:
            self._send_bytes(frame)
        return response

    def close(self, error: RemotingError | None = None) -> None:
        """Close the connection; requests without a response fail with `error`."""
        with self._state:
            if self._error is not None:
                return
            self._error = error or RemotingError(f"{self.address}: the connection is closed")
            waiting, self._waiting = self._waiting, {}
        with suppress(OSError):  # the other side was first
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the thread that reads, which closes the socket
        for response in waiting.values():
            response.set_exception(self._error)

    def _send_bytes(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            with self._sending:
                while rest:
                    with self._using:
                        try:
                            count = self._socket.send(rest)
                        except _NOT_YET:
                            count = 0
                    rest = rest[count:]
                    if not count and not self._wait(select.POLLOUT, self._timeout):
                        raise TimeoutError(f"the other side takes no bytes for {self._timeout:g} seconds")
        except (OSError, ValueError) as error:
            broken = RemotingError(f"{self.address}: a request was not sent: {error}")
            self.close(broken)
            raise broken from error

    def _read_all(self) -> None:
        """Give each response to its request, until the connection ends."""
        hint = "" if isinstance(self._socket, ssl.SSLSocket) else ". If it takes only TLS, give tls=true"
        try:
            for frame in self._frames():
                hint = ""
                command = decode(frame)
                if not command.is_response:
                    continue  # a request to a client, such as NOTIFY_CONSUMER_IDS_CHANGED, none of which is for us
                with self._state:
                    response = self._waiting.pop(command.opaque, None)
                if response is not None:
                    response.set_result(command)
        except ProtocolError as error:
            self.close(ProtocolError(f"{self.address}: {error}"))
        except OSError as error:
            self.close(RemotingError(f"{self.address}: the connection ended: {error}{hint}"))
        finally:
            self._socket.close()

    def _frames(self) -> Iterator[memoryview]:
        """The frames that arrive, each valid until the next one; many small ones are received at once."""
        data = memoryview(bytearray(_BUFFER_SIZE))
        start = stop = 0
        while True:
            missing = 4 - (stop - start)
            if missing <= 0:
                size = 4 + checked_length(data[start : start + 4])
                missing = size - (stop - start)
                if missing <= 0:
                    yield data[start : start + size]
                    start += size
                    continue
            if stop + missing > len(data) or start == stop:
                moved = data if stop - start + missing <= len(data) else memoryview(bytearray(stop - start + missing))
                moved[: stop - start] = data[start:stop]
                data, start, stop = moved, 0, stop - start
            if self._held:
                self._send_bytes(b"".join(self._held))
                self._held.clear()
            stop += self._receive(data[stop:])

    def _receive(self, buffer: memoryview) -> int:
        """The number of bytes that came, at least one."""
        while True:
            try:
                with self._using:
                    received = self._socket.recv_into(buffer)
            except _NOT_YET:
                self._wait(select.POLLIN, None)
                continue
            if not received:
                raise ConnectionError("the other side closed it")
            return received

    def _wait(self, event: int, seconds: float | None) -> bool:
        """Whether the socket became ready within a time."""
        poll = select.poll()
        poll.register(self._socket, event)
        return bool(poll.poll(None if seconds is None else seconds * 1000))


@dataclass(frozen=True)
class ClientSettings:
    """How a cluster is reached.

    Attributes:
        name_servers: The addresses of the name servers, `HOST:PORT`; any of them knows all brokers.
        timeout: Seconds within which a request must be answered.
        credentials: The keys with which requests are signed; None for a cluster without access control.
        tls: How connections are encrypted; None for connections that are not.
        serialize_type: How headers are written. A request whose code has more than 16 bits takes JSON.
        pull_group: The consumer group in whose name messages are pulled. No offset of it changes.
        repeats: Whether a request is sent again to a server that does not answer or is busy.
        patience: Seconds for which it is sent again, at least.
    """

    name_servers: tuple[str, ...]
    timeout: float = 10.0
    credentials: Credentials | None = None
    tls: Tls | None = None
    serialize_type: SerializeType = SerializeType.JSON
    pull_group: str = PULL_GROUP
    repeats: bool = True
    patience: float = 0.0


def parse_name_servers(address: str) -> tuple[str, ...]:
    """The name servers of `rocketmq://a:9876,b:9876`; the port is 9876 if it is not given."""
    text = address.removeprefix(LIVE_SCHEME).rstrip("/")
    if "@" in text:  # the error does not repeat what can be a password
        raise OptionError(
            f"the address {LIVE_SCHEME}...@{text.rpartition('@')[2]} has a user: give the name servers alone, and the "
            "user and its password as accessKey and secretKey"
        )
    servers = [server.strip() for server in text.replace(";", ",").split(",") if server.strip()]
    if not servers:
        raise OptionError(f"{address!r} names no name server: give rocketmq://HOST:9876, several separated by commas")
    full = [server if ":" in server.rpartition("]")[2] else f"{server}:9876" for server in servers]
    for server in full:
        parse_address(server)
    return tuple(full)


class RemotingClient:
    """Requests to name servers and brokers. All connections end with the context."""

    def __init__(self, settings: ClientSettings) -> None:
        """No connection is made before the first request."""
        self.settings = settings
        self._tls = None if settings.tls is None else settings.tls.context()
        self._connections: dict[str, Connection] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    def request(
        self,
        address: str,
        code: RequestCode,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        timeout: float | None = None,
        accepted: tuple[ResponseCode, ...] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        """The response to a request that may be sent more than once, as all do that only read.

        Fields that are None are left out. Each attempt must be answered within `timeout` seconds, by default those of
        the settings. Raises `RefusedError` if the answer is not `accepted`, and `RemotingError` if there is none.
        """
        return self._repeated(lambda: self.request_once(address, code, fields or {}, body, timeout, accepted))

    def requests(
        self, address: str, code: RequestCode, many: Iterable[Mapping[str, object]]
    ) -> Iterator[RemotingCommand]:
        """The responses to requests of one kind, by their fields: many are sent together. Raises those of `request`."""
        rest = iter(many)
        while some := list(itertools.islice(rest, _TOGETHER)):
            sent: list[Future[RemotingCommand]] = []
            with suppress(RemotingError):
                for fields in some:
                    sent.append(self.send(address, code, fields))
            answered, _ = wait(sent, self.settings.timeout)
            for fields, response in itertools.zip_longest(some, sent):
                is_answered = response in answered and response.exception() is None
                if is_answered and response.result().code == ResponseCode.SUCCESS:
                    yield response.result()
                else:
                    yield self.request(address, code, fields)

    def request_once(
        self,
        address: str,
        code: RequestCode,
        fields: Mapping[str, object],
        body: bytes = b"",
        timeout: float | None = None,
        accepted: tuple[ResponseCode, ...] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        """The response to a request that is sent once; see `request`."""
        seconds = self.settings.timeout if timeout is None else timeout
        connection = self.connection(address)
        try:
            response = connection.send(self._command(code, fields, body)).result(seconds)
        except FutureTimeoutError:
            error = RemotingError(f"{address}: {code.name} was not answered within {seconds:g} seconds")
            connection.close(error)
            raise error from None
        except RemotingError as error:
            raise type(error)(f"{error} ({code.name})") from error
        if response.code not in accepted:
            if response.code == ResponseCode.GO_AWAY:
                connection.close()
            raise refused(address, code, response)
        return response

    def name_server_request(
        self, code: RequestCode, fields: Mapping[str, object] | None = None
    ) -> tuple[str, RemotingCommand]:
        """The first name server that answers, and its answer. Raises the errors of `request`, of the last one."""
        servers = self.settings.name_servers

        def any_of_them() -> tuple[str, RemotingCommand]:
            failure: RemotingError | None = None
            for server in sorted(servers, key=lambda one: one != _ANSWERED.get(servers)):
                try:
                    response = self.request_once(server, code, fields or {})
                except RemotingError as error:
                    if isinstance(error, RefusedError) and error.code not in BUSY:
                        raise
                    failure = error
                else:
                    _ANSWERED[servers] = server
                    return server, response
            kind = ProtocolError if isinstance(failure, ProtocolError) else RemotingError
            raise kind(f"no name server of {', '.join(servers)} answers: {failure}") from failure

        return self._repeated(any_of_them)

    def send(self, address: str, code: RequestCode, fields: Mapping[str, object]) -> Future[RemotingCommand]:
        """The response of a request that is sent once, which comes later. Raises `RemotingError` if it is not sent."""
        return self.connection(address).send(self._command(code, fields, b""))

    def connection(self, address: str) -> Connection:
        """The open connection to an address, made if there is none. Raises `RemotingError` if it cannot be made."""
        with self._lock:
            found = self._connections.get(address)
        if found is not None and found.is_open:
            return found
        try:
            made = Connection(address, self.settings.timeout, self._tls)  # others do not wait for it
        except RemotingError as error:
            if address in self.settings.name_servers:
                raise
            raise RemotingError(
                f"{error}. A broker registered this address with the name servers (its brokerIP1 and listenPort): it "
                "must be one that this machine can reach"
            ) from error
        with self._lock:
            other = self._connections.get(address)
            if other is None or not other.is_open:
                self._connections[address] = other = made
        if other is not made:
            made.close()
        return other

    def disconnect(self, address: str) -> None:
        """Close the connection to an address, if there is one; requests without a response fail."""
        with self._lock:
            found = self._connections.pop(address, None)
        if found is not None:
            found.close()

    def _command(self, code: RequestCode, fields: Mapping[str, object], body: bytes) -> RemotingCommand:
        kind = self.settings.serialize_type if code < 1 << 15 else SerializeType.JSON
        # As Java's `toString` makes them.
        texts = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in fields.items()
            if value is not None
        }
        command = RemotingCommand(code, texts, body, serialize_type=kind)
        return command if self.settings.credentials is None else self.settings.credentials.sign(command)

    def _repeated(self, once: Callable[[], _T]) -> _T:
        """The result of `once`, called again after a time if there was no answer, or the broker was busy."""
        until = monotonic() + self.settings.patience
        for attempt in itertools.count(1):
            try:
                return once()
            except (ProtocolError, OptionError):
                raise
            except RemotingError as error:
                is_last = not self.settings.repeats or (attempt >= _ATTEMPTS and monotonic() >= until)
                if is_last or (isinstance(error, RefusedError) and error.code not in BUSY):
                    raise
            sleep(min(_FIRST_PAUSE * 2 ** min(attempt, 10), _MAX_PAUSE) * random.uniform(0.5, 1))
        raise AssertionError


def refused(address: str, code: RequestCode, response: RemotingCommand) -> RefusedError:
    """The error of an answer that is not a success."""
    names = {int(known): known.name for known in ResponseCode}
    what = names.get(response.code, f"code {response.code}")
    text = f"{address}: {code.name} was answered with {what}: {shown(response.remark or 'no reason given')}"
    if response.code == ResponseCode.NO_PERMISSION and _NO_ACCESS in (response.remark or ""):
        text += f" The request needs the right {RIGHTS.get(code, 'Get')} there"
    error = RefusedError(text)
    error.code = response.code
    return error


def shown(text: str) -> str:
    """A text of a server, for an error: without its end if it is long."""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
