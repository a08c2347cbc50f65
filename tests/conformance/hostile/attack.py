"""Starts what is attacked in a process of its own, attacks it, and looks at it meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import attrs
import yaml

from . import requests

ATTACKERS = 8
PATIENCE = 20.0
START_SECONDS = 120.0
EXPECTED = re.compile(
    r"failed to (create|convert|update)|strconv\.Parse|unknown patch type|merging lists|"
    r"resourceVersion should not be set|unable to|invalid|content is not"
)
"""What kube-apiserver answers with 500, too."""


@attrs.define
class Found:
    """What came of an attack; times in seconds, memory in MiB."""

    answers: Counter[str] = attrs.field(factory=Counter)
    bad: list[str] = attrs.field(factory=list)
    honest: list[float] = attrs.field(factory=list)
    before: float = 0.0
    peak: float = 0.0
    after: float = 0.0
    tracebacks: int = 0
    unanswered: int = 0

    def __str__(self) -> str:
        ordered = sorted(self.honest)
        worst = ordered[int(len(ordered) * 0.99)] * 1000 if ordered else float("nan")
        lines = [f"answers: {dict(sorted(self.answers.items()))}"]
        lines += [f"bad answers: {len(self.bad)}", *(f"  {each}" for each in self.bad[:10])]
        lines.append(f"tracebacks: {self.tracebacks}")
        lines.append(
            f"honest client: {len(ordered)} requests, p99 {worst:.0f} ms, "
            f"{self.unanswered} not answered in {PATIENCE:.0f} s"
        )
        lines.append(f"memory: {self.before:.0f}, peak {self.peak:.0f}, {self.after:.0f} MiB after")
        return "\n".join(lines)


@attrs.define
class Target:
    """Where it is, what is sent, and what an honest client sends."""

    port: int
    hostile: Callable[[Random], bytes]
    honest: bytes
    is_bad: Callable[[int, str], bool]


def _server(work: Path) -> Target:
    config = yaml.safe_load((work / "kubeconfig").read_text())
    port = int(config["clusters"][0]["cluster"]["server"].rpartition(":")[2])
    token = config["users"][0]["user"]["token"]
    text = (Path(__file__).parents[1] / "fuzz" / "samples.yaml").read_text(encoding="utf-8")
    samples = [
        {"apiVersion": known["apiVersion"], "kind": known["kind"], **each}
        for known in yaml.safe_load(text.replace("{name}", "h")).values()
        for each in known["samples"]
    ]
    honest = (
        "GET /api/v1/namespaces/kube-system HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    )
    return Target(
        port,
        lambda random: requests.to_server(random, token, samples),
        honest.encode(),
        lambda status, text: status >= 500 and not EXPECTED.search(text),
    )


def _webhooks(work: Path) -> Target:
    told = json.loads((work / "webhooks").read_text())
    honest = json.dumps(told["reviews"][0]).encode()
    headers = {"Content-Type": "application/json"}
    asked = requests.written("POST", told["paths"][0], honest, headers, Random(0))
    return Target(
        told["port"],
        lambda random: requests.to_webhook(random, tuple(told["paths"]), told["reviews"]),
        asked,
        lambda status, text: status >= 500 or "the webhook failed" in text,
    )


TARGETS: dict[str, tuple[list[str], str, Callable[[Path], Target]]] = {
    "server": (["-m", "kueuelib", "apiserver", "--kubeconfig", "{}"], "kubeconfig", _server),
    "webhooks": (["-m", "tests.conformance.hostile.webhooks", "{}"], "webhooks", _webhooks),
}


def _resident(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


async def _ask(streams: list[Any], port: int, data: bytes) -> tuple[int, str]:
    """Status and body of an answer; 0 when there is none."""
    head = ""
    try:
        async with asyncio.timeout(PATIENCE):
            if not streams:
                context = ssl._create_unverified_context()
                streams += await asyncio.open_connection("127.0.0.1", port, ssl=context)
            reader, writer = streams
            writer.write(data)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            size = re.search(r"(?i)content-length: (\d+)", head)
            body = await reader.readexactly(int(size[1])) if size else b""
        if "connection: close" in head.lower() or not size:
            raise ConnectionResetError
        return int(head.split()[1]), body.decode(errors="replace")
    except (TimeoutError, asyncio.IncompleteReadError, OSError):
        _hang_up(streams)
        return (int(head.split()[1]), "") if head else (0, "")


def _hang_up(streams: list[Any]) -> None:
    for each in streams[1:]:
        each.transport.abort()
    streams.clear()


async def attacked(target: str, seed: int, count: int) -> Found:
    """Attacks a target with so many requests.

    Raises:
        AssertionError: it does not start, or does not live to the end.
    """
    command, name, of = TARGETS[target]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        arguments = [each.format(work / name) for each in command]
        log = work / "log"
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, stdout=out, stderr=out, env={**os.environ}
            )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not (work / name).exists() or not (work / name).read_text().strip():
                assert time.monotonic() < deadline, log.read_text()
                await asyncio.sleep(0.1)
            found = await _attack(of(work), process.pid, Random(seed), count)
            assert process.returncode is None, log.read_text()
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
        before, *traces = log.read_text(errors="replace").split("Traceback")
        found.tracebacks = len(traces)
        found.bad += [f"Traceback{each[-1500:]}" for each in traces[:2]]
        del before
    return found


async def _attack(target: Target, pid: int, random: Random, count: int) -> Found:
    found = Found(before=_resident(pid))
    left = iter(range(count))
    ended = asyncio.Event()

    async def attacker() -> None:
        streams: list[Any] = []
        for _ in left:
            data = target.hostile(random)
            status, text = await _ask(streams, target.port, data)
            found.answers[f"{status // 100}xx" if status else "none"] += 1
            if target.is_bad(status, text):
                found.bad.append(f"{status} {text[:300]} to {data[:300]!r}")
        _hang_up(streams)

    async def honest() -> None:
        streams: list[Any] = []
        while not ended.is_set():
            started = time.monotonic()
            status, text = await _ask(streams, target.port, target.honest)
            found.unanswered += not status
            assert status in (0, 200), text
            found.honest.append(time.monotonic() - started)
            found.peak = max(found.peak, _resident(pid))
            await asyncio.sleep(0.02)
        _hang_up(streams)

    beside = asyncio.create_task(honest())
    await asyncio.gather(*(attacker() for _ in range(ATTACKERS)))
    ended.set()
    await beside
    found.after = _resident(pid)
    return found
