"""Starts what is attacked in a process of its own, attacks it, and looks at it meanwhile."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import attrs
import httpx
import yaml

from kueuelib.api.crd_parts import CONVERSION_PATH
from kueuelib.testing.processes import LocalCluster, Processes

from . import requests, webhooks

ATTACKERS = 8
PATIENCE = 20.0
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
    pid: int
    log: Path
    hostile: Callable[[Random], bytes]
    honest: bytes
    is_bad: Callable[[int, str], bool]


def _config(path: Path) -> tuple[str, str, str]:
    """URL, token and CA of a kubeconfig."""
    config = yaml.safe_load(path.read_text())
    cluster = config["clusters"][0]["cluster"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return cluster["server"], config["users"][0]["user"]["token"], ca


def _server(cluster: LocalCluster) -> Target:
    cluster.start_server(simulate=False)
    url, token, _ = _config(cluster.kubeconfig)
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
        int(url.rpartition(":")[2]),
        cluster.processes.pid("apiserver"),
        cluster.processes.folder / "apiserver.log",
        lambda random: requests.to_server(random, token, samples),
        honest.encode(),
        lambda status, text: status >= 500 and not EXPECTED.search(text),
    )


def _webhooks(cluster: LocalCluster) -> Target:
    cluster.start()
    url, token, ca = _config(cluster.kubeconfig)
    paths = [CONVERSION_PATH]
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(
        base_url=url, headers=headers, verify=ssl.create_default_context(cadata=ca), trust_env=False
    ) as client:
        for kind in ("mutating", "validating"):
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
            paths += [
                urlsplit(hook["clientConfig"]["url"]).path
                for found in client.get(path).raise_for_status().json()["items"]
                for hook in found["webhooks"]
            ]
    reviews = webhooks.reviews()
    honest = json.dumps(reviews[0]).encode()
    asked = requests.written(
        "POST", webhooks.QUEUE_PATH, honest, {"Content-Type": "application/json"}, Random(0)
    )
    return Target(
        cluster.webhook_port,
        cluster.processes.pid("manager"),
        cluster.processes.folder / "manager.log",
        lambda random: requests.to_webhook(random, tuple(paths), reviews),
        asked,
        lambda status, text: status >= 500 or '"code":500' in text or "webhook failed" in text,
    )


TARGETS: dict[str, Callable[[LocalCluster], Target]] = {"server": _server, "webhooks": _webhooks}


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
        ProcessError: it does not start, or does not live to the end.
    """
    with tempfile.TemporaryDirectory() as folder, Processes(Path(folder)) as processes:
        cluster = LocalCluster(processes, frameworks=webhooks.FRAMEWORKS)
        found = await asyncio.to_thread(TARGETS[target], cluster)
        result = await _attack(found, found.pid, Random(seed), count)
        processes.check()
        _before, *traces = found.log.read_text(errors="replace").split("Traceback")
        result.tracebacks = len(traces)
        result.bad += [f"Traceback{each[-1500:]}" for each in traces[:2]]
    return result


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
