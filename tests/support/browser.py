"""A real browser without a window: Chromium, spoken to over its debugging pipe (messages of JSON that end in NUL).

Chrome DevTools Protocol: https://chromedevtools.github.io/devtools-protocol
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
WAIT_SECONDS = 120.0


def find_browser() -> str | None:
    """Return the browser's path; None without one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """A tab.  *messages*: the console and the browser's log; *requests*: all URLs that it requested."""

    def __init__(self, reading: int, writing: int) -> None:
        self.messages: list[str] = []
        self.requests: list[str] = []
        self._reading, self._writing = reading, writing
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self._loads = 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method and return its result; events meanwhile are noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, place: Path | str) -> None:
        """Open a file, or a URL of this machine, and wait until it has loaded."""
        loads = self._loads
        self.call("Page.navigate", url=place if isinstance(place, str) else place.as_uri())
        while self._loads == loads:
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + WAIT_SECONDS
        while b"\0" not in self._rest:
            assert select.select([self._reading], [], [], max(end - time.monotonic(), 0.0))[0], "the browser is silent"
            more = os.read(self._reading, 1 << 20)
            assert more, "the browser has gone"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        method, parameters = found.get("method"), found.get("params", {})
        if method in ("Runtime.consoleAPICalled", "Log.entryAdded", "Runtime.exceptionThrown"):
            self.messages.append(json.dumps(parameters))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loads += 1
        return found


def _pipe() -> tuple[int, int]:
    """Return a pipe whose descriptors are none of those that the browser takes."""
    reading, writing = os.pipe()
    moved = fcntl.fcntl(reading, fcntl.F_DUPFD, 10), fcntl.fcntl(writing, fcntl.F_DUPFD, 10)
    os.close(reading)
    os.close(writing)
    return moved


@contextmanager
def open_page(folder: Path) -> Iterator[Page]:
    """Start a browser that keeps its files in *folder*, with no way to any host, and give it a tab."""
    browser = find_browser()
    assert browser is not None
    (to_read, to_answer), (to_listen, to_say) = _pipe(), _pipe()
    switches = (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
        *("--proxy-server=http://127.0.0.1:9", f"--user-data-dir={folder}", "--window-size=1280,900"),
    )
    # The browser reads descriptor 3 and writes descriptor 4.
    places = f'exec "$0" "$@" 3<&{to_listen} 4>&{to_answer} {to_listen}<&- {to_answer}>&-'
    with subprocess.Popen(
        ["bash", "-c", places, browser, *switches],
        pass_fds=(to_listen, to_answer),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(to_listen)
        os.close(to_answer)
        try:
            yield Page(to_read, to_say)
        finally:
            process.kill()
            os.close(to_read)
            os.close(to_say)
