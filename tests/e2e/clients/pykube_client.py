"""pykube-ng: makes, changes, selects and deletes objects, and follows a watch."""

from __future__ import annotations

import sys

import pykube

api = pykube.HTTPClient(pykube.KubeConfig.from_file(sys.argv[1]))
head = {"apiVersion": "v1", "kind": "ConfigMap"}
meta = {"name": "p", "namespace": "default", "labels": {"a": "b"}}
found = pykube.ConfigMap(api, {**head, "metadata": meta, "data": {"x": "1"}})
found.create()
event = next(iter(pykube.ConfigMap.objects(api).filter(namespace="default").watch()))
assert event.type == "ADDED", event
found.reload()
found.obj["data"]["x"] = "2"
found.update()
chosen = list(pykube.ConfigMap.objects(api).filter(namespace="default", selector={"a": "b"}))
assert [each.obj["data"] for each in chosen] == [{"x": "2"}], chosen
found.delete()
assert not found.exists()
assert len(list(pykube.Node.objects(api))) == 2
