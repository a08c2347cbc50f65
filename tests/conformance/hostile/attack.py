"""Starts what is attacked in a process of its own, attacks it, and looks at it meanwhile."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import ssl
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import attrs
import httpx
import yaml

from kueuelib.api.definitions import CONVERSION_PATH
from kueuelib.testing.processes import LocalCluster, Processes

from . import requests, webhooks
from .honest import PATIENCE, ask, hang_up
from .silence import silent_crowd

ATTACKERS = 8
HONEST = str(Path(__file__).with_name("honest.py"))
START_SECONDS = 0.5
"""Until the honest client asks for the first time."""
SHARES = {"requests": 1, "large objects": 50, "silent and slow clients": 10}
"""The phases, and of how many requests they have one."""
EXPECTED = re.compile(
    r"failed to (create|convert|update)|strconv\.Parse|unknown patch type|merging lists|"
    r"resourceVersion should not be set|unable to|invalid|content is not"
)
"""What kube-apiserver answers with 500, too; `same_for_real` asks it."""


@attrs.define
class Phase:
    """What came of one part of an attack; times in seconds, memory in MiB."""

    name: str
    answers: Counter[str] = attrs.field(factory=Counter)
    failed: list[tuple[int, str, bytes]] = attrs.field(factory=list)
    """Answers of 5xx: status, text and request."""
    bad: list[str] = attrs.field(factory=list)
    honest: list[float] = attrs.field(factory=list)
    peak: float = 0.0
    unanswered: int = 0

    def within(self, share: float) -> float:
        """The milliseconds in which this share of honest requests was answered."""
        ordered = sorted(self.honest)
        return ordered[int(len(ordered) * share)] * 1000 if ordered else float("nan")

    def __str__(self) -> str:
        counts = " / ".join(f"{self.answers[each]:,}" for each in ("2xx", "4xx", "5xx", "none"))
        return (
            f"| {self.name} | {counts} | {self.within(0.5):.0f} / {self.within(0.99):.0f} ms "
            f"of {len(self.honest):,} | {self.peak:.0f} |"
        )


@attrs.define
class Found:
    """What came of an attack; memory in MiB."""

    phases: list[Phase] = attrs.field(factory=list)
    before: float = 0.0
    after: float = 0.0
    tracebacks: int = 0

    @property
    def bad(self) -> list[str]:
        """What should not have happened."""
        return [each for phase in self.phases for each in phase.bad]

    def __str__(self) -> str:
        lines = ["| phase | 2xx / 4xx / 5xx / none | p50 / p99 of the honest client | peak MiB |"]
        lines += ["|---|---|---|---|", *map(str, self.phases)]
        lines.append(f"memory: {self.before:.0f} before, {self.after:.0f} after")
        lines.append(f"tracebacks: {self.tracebacks}, bad answers: {len(self.bad)}")
        unanswered = sum(each.unanswered for each in self.phases)
        lines.append(f"honest requests without an answer in {PATIENCE:g} s: {unanswered}")
        return "\n".join([*lines, *(f"  {each}" for each in self.bad[:10])])


@attrs.define
class Target:
    """Where it is, what is sent, and what an honest client sends."""

    port: int
    pid: int
    log: Path
    hostile: Callable[[Random], bytes]
    large: Callable[[Random], bytes]
    honest: bytes
    watch: bytes
    is_bad: Callable[[int, str], bool]
    token: str = ""


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

    def get(path: str) -> bytes:
        lines = f"GET {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}"
        return "\r\n".join((*lines, "", "")).encode()

    return Target(
        int(url.rpartition(":")[2]),
        cluster.processes.pid("apiserver"),
        cluster.processes.folder / "apiserver.log",
        lambda random: requests.to_server(random, token, samples),
        lambda random: requests.large_to_server(random, token),
        get("/api/v1/namespaces/kube-system"),
        get("/api/v1/namespaces/default/configmaps?watch=1"),
        lambda status, text: status >= 500 and not EXPECTED.search(text),
        token,
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
                for configuration in client.get(path).raise_for_status().json()["items"]
                for hook in configuration["webhooks"]
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
        lambda random: requests.large_to_webhook(random, tuple(paths)),
        asked,
        asked,
        lambda status, text: status >= 500 or '"code":500' in text or "webhook failed" in text,
    )


TARGETS: dict[str, Callable[[LocalCluster], Target]] = {"server": _server, "webhooks": _webhooks}


def _resident(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


async def attacked(target: str, seed: int, count: int) -> Found:
    """Attacks a target with so many requests.

    Raises:
        ProcessError: it does not start, or does not live to the end.
    """
    with tempfile.TemporaryDirectory() as folder, Processes(Path(folder)) as processes:
        cluster = LocalCluster(processes, frameworks=webhooks.FRAMEWORKS)
        known = await asyncio.to_thread(TARGETS[target], cluster)
        random = Random(seed)
        report = Found(before=_resident(known.pid))
        for name, share in SHARES.items():
            phase = Phase(name)
            report.phases.append(phase)
            draw = known.large if "large" in name else known.hostile
            crowd = min(600, count) if "silent" in name else 0
            async with silent_crowd(known.port, known.watch, crowd):
                await _attack(known, phase, draw, random, max(ATTACKERS, count // share))
        await asyncio.sleep(2)
        report.after = _resident(known.pid)
        processes.check()
        _before, *traces = known.log.read_text(errors="replace").split("Traceback")
        report.tracebacks = len(traces)
        report.phases[-1].bad += [f"Traceback{each[-1500:]}" for each in traces[:2]]
        failed = [each for phase in report.phases for each in phase.failed]
        if target == "server" and failed and os.environ.get("KUBEBUILDER_ASSETS"):
            report.phases[0].bad += await asyncio.to_thread(_not_for_real, failed, known.token)
    return report


async def _attack(
    target: Target, phase: Phase, draw: Callable[[Random], bytes], random: Random, count: int
) -> None:
    left = iter(range(count))

    async def attacker() -> None:
        streams: list[Any] = []
        for _ in left:
            data = draw(random)
            status, text = await ask(streams, target.port, data)
            phase.answers[f"{status // 100}xx" if status else "none"] += 1
            if status >= 500:
                phase.failed.append((status, text, data))
            if target.is_bad(status, text):
                phase.bad.append(f"{status} {text[:300]} to {data[:300]!r}")
        hang_up(streams)

    client = await asyncio.create_subprocess_exec(
        sys.executable, HONEST, str(target.port), stdin=PIPE, stdout=PIPE
    )
    assert client.stdin is not None
    client.stdin.write(json.dumps(target.honest.decode("latin-1")).encode() + b"\n")

    async def look() -> None:
        while True:
            phase.peak = max(phase.peak, _resident(target.pid))
            await asyncio.sleep(0.05)

    beside = asyncio.create_task(look())
    await asyncio.sleep(START_SECONDS)
    await asyncio.gather(*(attacker() for _ in range(ATTACKERS)))
    beside.cancel()
    output, _ = await client.communicate(b"")
    for line in output.splitlines():
        seconds, status = line.split()
        assert status in (b"0", b"200"), line
        phase.unanswered += status == b"0"
        phase.honest.append(float(seconds))


@contextmanager
def _real():
    from tests.conformance.real_server import assets, running

    folder = assets()
    assert folder is not None
    with tempfile.TemporaryDirectory() as work, running(folder, Path(work)) as server:
        yield server


def _not_for_real(failed: list[tuple[int, str, bytes]], token: str) -> list[str]:
    """The answers of 5xx that kube-apiserver does not give to the same request.

    What a request asks for is made before, in case that it was there.
    """
    differences = []
    with _real() as server:
        for status, text, data in failed:
            sent = data.replace(token.encode(), server.token.encode())
            path = data.split(b" ", 2)[1].decode("latin-1").partition("?")[0]
            real, words = asyncio.run(ask([], server.port, sent))
            if real < 500 and path.count("/") > 3:
                server.call("POST", path.rpartition("/")[0], {"metadata": {"name": "h"}})
                real, words = asyncio.run(ask([], server.port, sent))
            if real < 500:
                differences.append(
                    f"{status} {text[:300]}, but {real} {words[:300]} to {data[:300]!r}"
                )
    return differences
