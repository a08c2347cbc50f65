"""Calls that an API server received, by verb and resource: `apply workloads/status`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kueuelib.api.kinds import NODES
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.errors import ApiError
from kueuelib.runtime.client import Client
from kueuelib.runtime.queries import PatchType

AGENT = "bench"
"""The `User-Agent` of the player, whose calls do not count."""
WRITES = ("create", "update", "patch", "apply", "delete", "deletecollection")
_VERBS = {"post": "create", "put": "update"}
_LINE = re.compile(r"^apiserver_request_total\{(.*)\} ([0-9.e+]+)$", re.MULTILINE)
_REVIEW = re.compile(
    r"^apiserver_admission_webhook_request_total\{(.*)\} ([0-9.e+]+)$", re.MULTILINE
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_OWN_GROUPS = ("kueue.x-k8s.io", "events.k8s.io")
_OWN_RESOURCES = ("events", "jobs", "pods")


class CountedClient:
    """The player's own calls, counted."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.calls: Counter[str] = Counter()

    async def create(self, resource: Resource, obj: Obj) -> Obj:
        """Create an object."""
        self.calls[f"create {resource.plural}"] += 1
        return await self.client.create(resource, obj)

    async def make_ready(self, node: Obj) -> None:
        """Report the status of a node, which creation leaves out, and take away the taint that
        kube-apiserver adds.
        """
        self.calls["patch nodes/status"] += 1
        self.calls["patch nodes"] += 1
        key = ObjectKey("", node["metadata"]["name"])
        body = {"status": node["status"]}
        await self.client.patch(NODES, key, body, PatchType.MERGE, subresource="status")
        await self.client.patch(NODES, key, {"spec": {"taints": None}}, PatchType.MERGE)

    async def apply_status(
        self, resource: Resource, key: ObjectKey, body: Mapping[str, Any], owner: str
    ) -> Obj:
        """Apply a part of an object's status and own it."""
        self.calls[f"apply {resource.plural}/status"] += 1
        return await self.client.patch(
            resource,
            key,
            body,
            PatchType.APPLY,
            subresource="status",
            field_manager=owner,
            force=True,
        )


def from_metrics(text: str) -> Counter[str]:
    """The calls that kube-apiserver says it received, but those of its own parts, and its reviews.

    Args:
        text: what its `/metrics` answers.
    """
    calls: Counter[str] = Counter()
    for labels, number in _LINE.findall(text):
        label = dict(_LABEL.findall(labels))
        ours = label["group"] in _OWN_GROUPS or label["resource"] in _OWN_RESOURCES
        if not ours or label["system_client"]:
            continue
        verb = label["verb"].lower()
        what = "/".join(filter(None, (label["resource"], label["subresource"])))
        calls[f"{_VERBS.get(verb, verb)} {what}"] += int(float(number))
    for labels, number in _REVIEW.findall(text):
        calls[f"review {dict(_LABEL.findall(labels))['name']}"] += int(float(number))
    return calls


def successful_writes(text: str) -> Counter[str]:
    """The writes of everybody that kube-apiserver has carried out, but those of its own parts."""
    writes: Counter[str] = Counter()
    for labels, number in _LINE.findall(text):
        label = dict(_LABEL.findall(labels))
        verb = _VERBS.get(label["verb"].lower(), label["verb"].lower())
        if verb in WRITES and label["code"].startswith("2") and label["resource"] != "leases":
            what = "/".join(filter(None, (label["resource"], label["subresource"])))
            writes[f"{verb} {what}"] += int(float(number))
    return writes


def of_metrics(client: CountedClient) -> Callable[[], Any]:
    """Reads the calls of everybody but the player from a server's metrics; none if it has none."""

    async def read() -> Counter[str]:
        transport = client.client.transport
        try:
            answer = await transport.request("GET", "/metrics", accept="text/plain")
        except ApiError:
            return Counter()
        return from_metrics(answer.body.decode()) - client.calls

    return read


def of_counting_server(process: subprocess.Popen[bytes], path: Path) -> Callable[[], Any]:
    """Reads the calls of everybody but the player from `counting_server.py`."""

    async def read() -> Counter[str]:
        path.unlink(missing_ok=True)
        process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 20
        while not path.exists():
            if time.monotonic() > deadline:
                raise TimeoutError("the counting server does not write its counts")
            time.sleep(0.02)
        counts = json.loads(path.read_text())
        return sum(
            (Counter(calls) for agent, calls in counts.items() if agent != AGENT), Counter[str]()
        )

    return read
