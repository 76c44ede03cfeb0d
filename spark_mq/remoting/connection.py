"""One TCP connection to a broker or name server: requests go out, a thread reads the responses."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace

from spark_mq.errors import OptionError, ProtocolError, RemotingError
from spark_mq.remoting.command import ONE_WAY_FLAG, RemotingCommand, checked_length, decode, encode

_BUFFER_SIZE = 256 << 10
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


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
        """Connect.

        Args:
            timeout: Seconds within which the connection must be there, and a request must have left.

        Raises:
            RemotingError: Nobody answers at the address, or not by TLS.
        """
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

    def send_one_way(self, command: RemotingCommand) -> None:
        """Send a request that has no response."""
        if self._error is not None:
            raise self._error
        self._send_bytes(encode(replace(command, flag=command.flag | ONE_WAY_FLAG), next(self._opaques)))

    def close(self, error: RemotingError | None = None) -> None:
        """Close the connection; requests without a response fail with `error`."""
        with self._state:
            if self._error is not None:
                return
            self._error = error or RemotingError(f"{self.address}: the connection is closed")
            waiting, self._waiting = self._waiting, {}
        with contextlib.suppress(OSError):  # the other side was first
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
        try:
            for frame in self._frames():
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
            self.close(RemotingError(f"{self.address}: the connection ended: {error}"))
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
