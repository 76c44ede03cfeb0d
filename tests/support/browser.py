"""A headless Chromium that a test drives, and what it reports: errors of scripts, and what was fetched."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tornado.websocket import WebSocketClientConnection, websocket_connect

CHROMIUM = shutil.which("chromium")
_SECONDS = 60


class Page:
    """A page that is open: what a test does with it.

    Attributes:
        errors: The messages of scripts and of the browser that say that something is wrong.
        fetched: The addresses that were asked for.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: WebSocketClientConnection) -> None:
        self.errors: list[str] = []
        self.fetched: list[str] = []
        self._loop, self._socket, self._number = loop, socket, 0

    def ask(self, method: str, **parameters: Any) -> Any:
        """The answer of the browser to a command of the DevTools protocol."""
        self._number += 1
        return self._loop.run_until_complete(asyncio.wait_for(self._ask(self._number, method, parameters), _SECONDS))

    async def _ask(self, number: int, method: str, parameters: dict[str, Any]) -> Any:
        await self._socket.write_message(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(await self._socket.read_message() or "{}")
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        name, parameters = message.get("method"), message.get("params", {})
        if name == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"]))
        elif name in ("Log.entryAdded", "Runtime.consoleAPICalled"):
            self.errors.append(json.dumps(parameters))
        elif name == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith("data:"):
            self.fetched.append(parameters["request"]["url"])

    def open(self, file: Path, width: int, dark: bool = False) -> None:
        """Open a file in a window of this width."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=file.as_uri())
        until = time.monotonic() + _SECONDS
        while self.run("document.readyState") != "complete" or not self.run("location.href").startswith("file"):
            assert time.monotonic() < until
            time.sleep(0.05)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press and release a key."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])


@contextmanager
def browser_page(folder: Path) -> Iterator[Page]:
    """A context with a page of a browser, which keeps its files in `folder`."""
    assert CHROMIUM is not None
    port_file = folder / "DevToolsActivePort"
    words = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"]
    words += ["--disable-background-networking", f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    loop = asyncio.new_event_loop()
    try:
        until = time.monotonic() + _SECONDS
        while not port_file.is_file() or len(port_file.read_text().splitlines()) < 2:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        port = port_file.read_text().splitlines()[0]
        yield Page(loop, loop.run_until_complete(_first_page(port)))
    finally:
        process.kill()
        process.wait()
        loop.close()


async def _first_page(port: str) -> WebSocketClientConnection:
    from tornado.httpclient import AsyncHTTPClient

    answer = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{port}/json")
    pages = [one for one in json.loads(answer.body) if one["type"] == "page"]
    return await websocket_connect(pages[0]["webSocketDebuggerUrl"], max_message_size=1 << 28)
