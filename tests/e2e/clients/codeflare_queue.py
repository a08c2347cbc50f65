"""codeflare-sdk: submits two Ray clusters to a queue that has room for one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from codeflare_sdk import Cluster, ClusterConfiguration, list_all_queued, list_local_queues
from kubernetes import client, config

SECONDS = 60.0
WHERE = ("ray.io", "v1")
_, active = config.list_kube_config_contexts(sys.argv[1])
namespace = active["context"]["namespace"]
custom = client.CustomObjectsApi(config.new_client_from_config(sys.argv[1]))


def submitted(name: str) -> Cluster:
    sizes = {
        f"{who}_{what}_{how}": 1
        for who in ("head", "worker")
        for what in ("cpu", "memory")
        for how in ("requests", "limits")
    }
    cluster = Cluster(
        ClusterConfiguration(
            name=name, namespace=namespace, local_queue="q", num_workers=1, image="i", **sizes
        )
    )
    cluster.up()
    return cluster


def is_suspended(name: str) -> bool:
    cluster = custom.get_namespaced_custom_object(*WHERE, namespace, "rayclusters", name)
    return cluster["spec"]["suspend"]


def report(name: str, state: str) -> None:
    """Writes what the controller of Ray clusters would write."""
    body = {"status": {"state": state}}
    custom.patch_namespaced_custom_object_status(*WHERE, namespace, "rayclusters", name, body)


def queued() -> list[str]:
    return [each.name for each in list_all_queued(namespace, print_to_console=False)]


def until(check: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS
    while not check():
        assert time.monotonic() < deadline, f"not in {SECONDS} s"
        time.sleep(0.1)


assert [each["name"] for each in list_local_queues(namespace)] == ["q"]
first = submitted("first")
until(lambda: not is_suspended("first"))
report("first", "ready")
second = submitted("second")
until(lambda: queued() == ["second"])
assert is_suspended("second")
report("second", "suspended")
assert first.status(print_to_console=False)[1]
assert not second.status(print_to_console=False)[1]
first.down()
until(lambda: not is_suspended("second"))
assert queued() == []
