"""A headless Chromium that a test drives over its debugging protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium")
ABSENT = "there is no chromium on the PATH"
PDFTOTEXT = shutil.which("pdftotext")
NO_PDFTOTEXT = "there is no pdftotext (poppler-utils) on the PATH"
PATIENCE = 180.0
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-sync", "--disable-background-networking", "--disable-component-update"),
    *("--hide-scrollbars", "--remote-debugging-port=0", "--window-size=1280,1000"),
)


class Page:
    """One page of the browser; `said` is what it complained about."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self.said: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE):
            while True:
                message = await self._socket.receive_json()
                if message.get("id") == number:
                    assert "error" not in message, message
                    result: dict[str, Any] = message["result"]
                    return result
                self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        if message["method"] == "Log.entryAdded":
            self.said.append(message["params"]["entry"]["text"])
        if message["method"] == "Runtime.exceptionThrown":
            self.said.append(str(message["params"]["exceptionDetails"]))

    async def open(self, url: str) -> None:
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def ask(self, script: str) -> Any:
        """The value of an expression, which may be a promise."""
        answer = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, script: str) -> Any:
        """Asks until the value is true."""
        async with asyncio.timeout(PATIENCE):
            while not (value := await self.ask(script)):
                await asyncio.sleep(0.05)
        return value

    async def press(self, key: str, code: int, text: str = "", modifiers: int = 0) -> None:
        fields = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **fields)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **fields)

    async def scheme(self, name: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": name}
        await self.call("Emulation.setEmulatedMedia", features=[feature])

    async def picture(self) -> bytes:
        shot = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(shot["data"])

    async def narrow(self, width: int) -> None:
        """The screen of a phone."""
        screen = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        await self.call("Emulation.setDeviceMetricsOverride", **screen)

    async def printed(self, file: Path, *, landscape: bool) -> str:
        """What is on A4 paper, in the order in which it was drawn.

        What is beyond the edge of the paper is not in it.
        """
        a4 = {"paperWidth": 8.27, "paperHeight": 11.69, "landscape": landscape}
        pdf = await self.call("Page.printToPDF", **a4)
        file.write_bytes(base64.b64decode(pdf["data"]))
        assert PDFTOTEXT is not None
        command = [PDFTOTEXT, "-raw", str(file), "-"]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        text, _ = await process.communicate()
        assert process.returncode == 0
        return text.decode()


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Page]:
    """A browser with one empty page; it ends with the context."""
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        port = await _port(process)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                targets = await answer.json()
            (url,) = [one["webSocketDebuggerUrl"] for one in targets if one["type"] == "page"]
            async with session.ws_connect(url, max_msg_size=0) as socket:
                yield Page(socket)
    finally:
        process.kill()
        await process.communicate()


async def _port(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE):
        async for line in process.stderr:
            if match := re.search(rb"ws://127\.0\.0\.1:(\d+)/", line):
                return match[1].decode()
    raise AssertionError("the browser ended")
