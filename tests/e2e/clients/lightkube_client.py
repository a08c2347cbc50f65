"""lightkube: creates, applies on the server's side, lists and deletes."""

from __future__ import annotations

import sys

from lightkube import Client, KubeConfig
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Node

api = Client(config=KubeConfig.from_file(sys.argv[1]), field_manager="light")
meta = ObjectMeta(name="l", namespace="default")
api.create(ConfigMap(metadata=meta, data={"x": "1"}))
wanted = ConfigMap(apiVersion="v1", kind="ConfigMap", metadata=meta, data={"x": "2"})
applied = api.apply(wanted, force=True)
assert applied.data == {"x": "2"}, applied
assert [each.metadata.name for each in api.list(ConfigMap, namespace="default")] == ["l"]
api.delete(ConfigMap, "l", namespace="default")
assert len(list(api.list(Node))) == 2
