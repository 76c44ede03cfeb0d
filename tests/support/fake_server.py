"""A name server or broker in this process that sends any bytes, for tests of the client."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from spark_mq.remoting.command import RESPONSE_FLAG, RemotingCommand, decode, encode

Answer = Callable[[RemotingCommand], Iterable[bytes]]
"""From a request to the pieces of bytes that are sent back, one after the other."""


def response(
    request: RemotingCommand,
    code: int = 0,
    fields: Mapping[str, str] | None = None,
    body: bytes = b"",
    remark: str | None = None,
) -> bytes:
    """The frame that answers a request."""
    command = RemotingCommand(code, fields or {}, body, request.opaque, RESPONSE_FLAG, remark)
    return encode(replace(command, serialize_type=request.serialize_type))


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """The address of a server that answers all requests, each connection in a thread of its own.

    An answer that raises `ConnectionError` closes the connection.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threading.Thread(target=_serve, args=(connection, answer), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for one in (listener, *connections):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _serve(connection: socket.socket, answer: Answer) -> None:
    with connection, contextlib.suppress(OSError), connection.makefile("rb") as stream:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as Netty does: a small answer does not wait
        while length := stream.read(4):
            request = decode(length + stream.read(struct.unpack(">i", length)[0]))
            for piece in answer(request):
                connection.sendall(piece)
