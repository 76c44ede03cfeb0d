"""A small HTTP proxy between a program and the S3 server of the tests: it counts, delays and spoils requests.

The requests are answered by the real server. Only two kinds of answers are made here: those that a test wants to be
spoiled, and those to the removal of many files by one request from a bucket that is a local folder. The server would
take five seconds for each folder that such a request names before it is empty; S3 has no folders.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.sax.saxutils import unescape

from tests.s3.server import S3Server

_HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding")


class Fault(StrEnum):
    """What goes wrong with the answer of a request."""

    INTERNAL_ERROR = "500"
    SLOW_DOWN = "503"
    CUT_BODY = "the connection ends in the middle of the body"


ERRORS = (Fault.INTERNAL_ERROR, Fault.SLOW_DOWN)


def every_20th(*faults: Fault) -> Callable[[int, str], Fault | None]:
    """Each of the faults in turn, for every twentieth request (`Proxy.fault_of`)."""
    return every(20, *faults)


def every(step: int, *faults: Fault) -> Callable[[int, str], Fault | None]:
    """Each of the faults in turn, for every `step`-th request (`Proxy.fault_of`)."""
    return lambda number, _method: None if number % step else faults[number // step % len(faults)]


@dataclass(frozen=True)
class Request:
    """One request that was answered: `bytes_sent` counts the bytes of the answer's body.

    `range` is the request's header of this name, empty if it has none.
    """

    method: str
    path: str
    bytes_sent: int
    range: str = ""

    @property
    def is_list(self) -> bool:
        """Whether it lists a folder."""
        return "list-type=" in self.path


class Proxy:
    """A proxy in front of one server. `requests` are those since the last `reset`, in the order of their answers.

    `fault_of` decides by the number of a request, from 1 on, and by its method, what goes wrong with it.
    """

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.requests: list[Request] = []
        self.faults = 0
        self.delay = 0.0
        self.most_at_once = 0
        self._at_once = 0
        self.fault_of: Callable[[int, str], Fault | None] = lambda _number, _method: None
        self._count = 0
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        self._http.daemon_threads = True
        self.endpoint = f"127.0.0.1:{self._http.server_address[1]}"

    @contextlib.contextmanager
    def running(self) -> Iterator[Proxy]:
        """Answer requests until the end of the context."""
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()
            thread.join()

    def reset(self) -> None:
        """Forget the requests so far; no delay and no fault from now on."""
        with self._lock:
            self.requests, self.faults, self.delay, self._count, self.most_at_once = [], 0, 0.0, 0, 0
            self.fault_of = lambda _number, _method: None

    @contextlib.contextmanager
    def delayed(self) -> Iterator[None]:
        """Wait; count the requests that wait at the same time."""
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            time.sleep(self.delay)
            yield
        finally:
            with self._lock:
                self._at_once -= 1

    def clear(self) -> None:
        """Forget the requests so far; delay and faults stay."""
        with self._lock:
            self.requests = []

    @property
    def bytes_sent(self) -> int:
        """Bytes of the bodies of all answers."""
        return sum(request.bytes_sent for request in self.requests)

    def next_fault(self, method: str) -> Fault | None:
        """What goes wrong with the request that has just come."""
        with self._lock:
            self._count += 1
            fault = self.fault_of(self._count, method)
            self.faults += fault is not None
        return fault

    def add(self, request: Request) -> None:
        """Count a request."""
        with self._lock:
            self.requests.append(request)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client, which has a connection of its own to the server."""

    protocol_version = "HTTP/1.1"
    # An answer goes out in two writes, and without this the second one would wait for an acknowledgement of the first.
    disable_nagle_algorithm = True
    proxy: Proxy

    def setup(self) -> None:
        super().setup()
        self._server = http.client.HTTPConnection(self.proxy.server.host, self.proxy.server.port)

    def finish(self) -> None:
        self._server.close()
        with contextlib.suppress(OSError):
            super().finish()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.proxy.delayed():
            pass
        fault = self.proxy.next_fault(self.command)
        if fault in (Fault.INTERNAL_ERROR, Fault.SLOW_DOWN):
            self._send(int(fault), "spoiled", [], b"")
            return
        bucket = self.proxy.server.folder / self.path.strip("/").partition("?")[0]
        if self.command == "POST" and self.path.endswith("?delete") and bucket.is_dir():
            self._remove(bucket, body.decode())
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        self._server.request(self.command, self.path, body or None, headers)
        answer = self._server.getresponse()
        content = answer.read()
        if fault is Fault.CUT_BODY and self.command == "GET":
            self._send(answer.status, answer.reason, answer.getheaders(), content, len(content) // 2)
            self.close_connection = True
        else:
            self._send(answer.status, answer.reason, answer.getheaders(), content)

    def _remove(self, bucket: Path, body: str) -> None:
        """Remove the files that the body names, and the folders that are empty then."""
        keys = re.findall("<Key>(.*?)</Key>", body)
        files = [bucket / unescape(key) for key in keys]
        for file in files:
            if file.is_file():
                file.unlink()
        for folder in sorted({parent for file in files for parent in file.parents if bucket in parent.parents})[::-1]:
            with contextlib.suppress(OSError):
                folder.rmdir()
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        answer = f"<?xml version='1.0' encoding='UTF-8'?><DeleteResult>{deleted}</DeleteResult>"
        self._send(200, "OK", [], answer.encode())

    def _send(
        self, status: int, reason: str, headers: list[tuple[str, str]], content: bytes, sent: int | None = None
    ) -> None:
        content = content if sent is None else content[:sent]
        # Before the answer, so that a client that has it finds its request counted.
        self.proxy.add(Request(self.command, self.path, len(content), self.headers.get("Range", "")))
        self.send_response_only(status, reason)
        given = {name.lower() for name, _ in headers}
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        if "content-length" not in given:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        pass
