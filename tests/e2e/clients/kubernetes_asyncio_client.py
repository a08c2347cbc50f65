"""kubernetes_asyncio: models, a watch, and an error."""

from __future__ import annotations

import asyncio
import sys

from kubernetes_asyncio import client, config, watch

POD = {
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]},
}


async def main() -> None:
    configuration = client.Configuration()
    await config.load_kube_config(sys.argv[1], client_configuration=configuration)
    async with client.ApiClient(configuration) as api:
        core = client.CoreV1Api(api)
        assert len((await core.list_node()).items) == 2
        await core.create_namespaced_pod("default", POD)
        seen = []
        async with watch.Watch() as watching:
            async for event in watching.stream(
                core.list_namespaced_pod, "default", label_selector="app=web", timeout_seconds=120
            ):
                seen.append(event["type"])
                if event["type"] == "DELETED":
                    break
                if event["object"].status.phase == "Running":
                    await core.delete_namespaced_pod("web", "default")
        assert seen[-1] == "DELETED", seen


asyncio.run(main())
