"""The official Python client: lists nodes, patches, waits for a Job, and deletes."""

from __future__ import annotations

import sys

from kubernetes import client, config, watch

api = config.new_client_from_config(sys.argv[1])
core, batch = client.CoreV1Api(api), client.BatchV1Api(api)
nodes = core.list_node().items
assert [each.metadata.name for each in nodes] == ["simulated-node-0", "simulated-node-1"]
assert all(each.status.node_info.boot_id and each.spec for each in nodes), nodes
core.create_namespaced_config_map("default", {"metadata": {"name": "o"}, "data": {"x": "1"}})
changed = core.patch_namespaced_config_map("o", "default", {"data": {"x": "2"}})
assert changed.data == {"x": "2"}
core.delete_namespaced_config_map("o", "default")
assert core.list_namespaced_config_map("default").items == []
template = client.V1PodTemplateSpec(
    metadata=client.V1ObjectMeta(annotations={"kueuelib.dev/run-seconds": "0"}),
    spec=client.V1PodSpec(
        restart_policy="Never", containers=[client.V1Container(name="c", image="i")]
    ),
)
batch.create_namespaced_job(
    "default",
    client.V1Job(metadata=client.V1ObjectMeta(name="j"), spec=client.V1JobSpec(template=template)),
)
stream = watch.Watch().stream(batch.list_namespaced_job, "default", timeout_seconds=120)
assert any(event["object"].status.succeeded for event in stream)
