"""The webhooks of a manager's queueing kinds in a process of their own; the argument is a file."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from kueuelib.controllers.webhooks import queueing_entries, serve
from kueuelib.runtime.webhook.certs import host_names, load, renewed, server_context
from kueuelib.runtime.webhook.server import WebhookServer

QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "ClusterQueue",
    "metadata": {"name": "q", "namespace": "", "labels": {"a": "b"}},
    "spec": {
        "cohort": "c",
        "namespaceSelector": {"matchLabels": {"a": "b"}},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "3"}]}],
            }
        ],
    },
}
WORKLOAD = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "Workload",
    "metadata": {"name": "w", "namespace": "n", "finalizers": ["f"]},
    "spec": {
        "queueName": "l",
        "priority": 1,
        "podSets": [{"name": "main", "count": 2, "template": {"spec": {"containers": [{}]}}}],
    },
    "status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]},
}


def reviews() -> list[dict[str, Any]]:
    """Good ones, to be changed."""
    found = []
    for obj in (QUEUE, WORKLOAD):
        for operation, old in (("CREATE", None), ("UPDATE", obj), ("DELETE", obj)):
            request = {
                "uid": "u",
                "operation": operation,
                "kind": {"group": "kueue.x-k8s.io", "version": "v1beta1", "kind": obj["kind"]},
                "name": "q",
                "namespace": "n",
                "object": None if operation == "DELETE" else obj,
                "oldObject": old,
                "userInfo": {"username": "u", "groups": ["g"]},
                "options": {"kind": "CreateOptions"},
            }
            head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
            found.append({**head, "request": request})
    wanted = {
        "uid": "u",
        "desiredAPIVersion": "kueue.x-k8s.io/v1beta2",
        "objects": [QUEUE, WORKLOAD],
    }
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
    return [*found, {**head, "request": wanted}]


async def main(told: Path) -> None:
    """Serves until it is ended."""
    context = server_context()
    load(context, renewed(None, host_names(["127.0.0.1"]), time.time()))
    server = WebhookServer("127.0.0.1", 0, context)
    serve(server)
    queue = [each.path for each in queueing_entries() if "queue" in each.path]
    paths = [*queue, *(path for path in server.paths if path not in queue)]

    def ready() -> None:
        facts = {"port": server.port, "paths": paths, "reviews": reviews()}
        told.write_text(json.dumps(facts), encoding="utf-8")

    await server.run(ready)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
