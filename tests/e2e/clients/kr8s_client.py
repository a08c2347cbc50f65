"""kr8s: makes a pod, waits for it, labels and deletes it."""

from __future__ import annotations

import sys

import kr8s
from kr8s.objects import Pod

api = kr8s.api(kubeconfig=sys.argv[1])
spec = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}
pod = Pod({"metadata": {"name": "web", "namespace": "default"}, "spec": spec}, api=api)
pod.create()
pod.wait("condition=Ready", timeout=120)
pod.label({"tier": "front"})
found = list(api.get("pods", namespace="default", label_selector={"tier": "front"}))
assert [each.name for each in found] == ["web"], found
pod.delete()
pod.wait("delete", timeout=120)
assert len(list(api.get("nodes"))) == 2
