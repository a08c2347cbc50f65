"""A plain REST client, so that the product is not judged through its own client."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import yaml

Obj = dict[str, Any]
T = TypeVar("T")

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
WORKLOADS = f"{KUEUE}/namespaces/default/workloads"
PODS = "/api/v1/namespaces/default/pods"
PATIENCE = 180.0
"""Seconds for what takes some on an idle machine; nothing is measured by it."""


class Rest:
    """Verbs by path; answers are raised as `httpx.HTTPStatusError` when they failed."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        user = config["users"][0]["user"]
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.warnings: list[str] = []
        """Those that came with the last answer."""
        self._http = httpx.Client(
            base_url=cluster["server"],
            verify=ssl.create_default_context(cadata=ca),
            headers={"Authorization": f"Bearer {user['token']}"},
            timeout=30,
            trust_env=False,
        )

    def metrics(self, port: int) -> str:
        """What a manager serves for a scraper with our token."""
        return httpx.get(
            f"https://127.0.0.1:{port}/metrics",
            headers={"Authorization": self._http.headers["Authorization"]},
            verify=False,
            timeout=30,
            trust_env=False,
        ).text

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def _call(self, method: str, path: str, **kwargs: Any) -> Any:
        answer = self._http.request(method, path, **kwargs)
        for _ in range(20):  # a kind that was just defined again answers 429 for a moment
            if method != "GET" or answer.status_code != 429:
                break
            time.sleep(0.5)
            answer = self._http.request(method, path, **kwargs)
        self.warnings = answer.headers.get_list("warning")
        if answer.is_error:
            text = f"{method} {path}: {answer.status_code} {answer.text}"
            raise httpx.HTTPStatusError(text, request=answer.request, response=answer)
        return answer.json()

    def text(self, path: str) -> str:
        return self._http.get(path).text

    def get(self, path: str) -> Obj:
        return self._call("GET", path)

    def items(self, path: str) -> list[Obj]:
        return self._call("GET", path)["items"]

    def create(self, path: str, obj: Obj) -> Obj:
        return self._call("POST", path, json=obj)

    def merge(self, path: str, body: Obj) -> Obj:
        headers = {"Content-Type": "application/merge-patch+json"}
        return self._call("PATCH", path, content=json.dumps(body), headers=headers)

    def replace(self, path: str, obj: Obj) -> Obj:
        return self._call("PUT", path, json=obj)

    def apply(self, path: str, obj: Obj, manager: str) -> Obj:
        """Applies server-side, and takes over what others own."""
        headers = {"Content-Type": "application/apply-patch+yaml"}
        params = {"fieldManager": manager, "force": "true"}
        return self._call("PATCH", path, content=json.dumps(obj), headers=headers, params=params)

    def delete(self, path: str, **options: str) -> None:
        self._call("DELETE", path, params={"propagationPolicy": "Background", **options})

    def watch(self, path: str, seconds: float) -> Iterator[tuple[str, Obj]]:
        """Events from the present state on; ends with the stream."""
        params = {"watch": "true", "timeoutSeconds": str(int(seconds))}
        timeout = httpx.Timeout(30, read=seconds + 30)
        with self._http.stream("GET", path, params=params, timeout=timeout) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                event = json.loads(line)
                yield event["type"], event["object"]


def eventually(fn: Callable[[], T], seconds: float = PATIENCE, pause: float = 0.05) -> T:
    """Calls `fn` until its result is true; an AssertionError or a failed answer means not yet.

    It asks less often the longer it has waited, at most four times less.
    """
    deadline, longest = time.monotonic() + seconds, 4 * pause
    while True:
        reason: object = None
        try:
            if value := fn():
                return value
        except (AssertionError, httpx.HTTPError, KeyError) as error:
            reason = error
        assert time.monotonic() < deadline, f"not reached in {seconds:g} s: {reason}"
        time.sleep(pause)
        pause = min(1.1 * pause, longest)


def condition(obj: Obj, type_: str) -> Obj:
    conditions = obj.get("status", {}).get("conditions") or []
    return next((entry for entry in conditions if entry["type"] == type_), {})


def is_true(obj: Obj, type_: str) -> bool:
    return condition(obj, type_).get("status") == "True"


def queues(rest: Rest, cpu: int, *, local: bool = True) -> None:
    """The flavor, ClusterQueue and LocalQueue of the README, with that quota."""
    text = (Path(__file__).parents[2] / "examples/first_queue/queues.yaml").read_text()
    for obj in yaml.safe_load_all(text):
        plural = {
            "ResourceFlavor": "resourceflavors",
            "ClusterQueue": "clusterqueues",
            "LocalQueue": "namespaces/default/localqueues",
        }[obj["kind"]]
        if obj["kind"] == "LocalQueue" and not local:
            continue
        if obj["kind"] == "ClusterQueue":
            quota = obj["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
            quota["nominalQuota"] = str(cpu)
        rest.create(f"{KUEUE}/{plural}", obj)


def urgent(rest: Rest, job: Obj) -> Obj:
    """The Job with a priority above others, so that creation in one second cannot decide."""
    path = f"{KUEUE}/workloadpriorityclasses"
    if not rest.items(path):
        typed = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass"}
        rest.create(path, {**typed, "metadata": {"name": "urgent"}, "value": 5})
    labels = {**job["metadata"]["labels"], "kueue.x-k8s.io/priority-class": "urgent"}
    return {**job, "metadata": {**job["metadata"], "labels": labels}}


def job(name: str, *, seconds: float, pods: int = 1, cpu: str = "1") -> Obj:
    """A queued Job whose pods run that long."""
    container = {
        "name": "work",
        "image": "registry.example/work:1",
        "resources": {"requests": {"cpu": cpu}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": {"kueuelib.dev/run-seconds": str(seconds)}},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 1,
                    "containers": [container],
                },
            },
        },
    }
