"""kopf: the operator beside it greets, and says so in the status of a custom object."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import kopf  # noqa: F401 - it has to be there
from kubernetes_asyncio import client, config

ABOUT = ("example.com", "v1", "default", "greetings")
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "greetings.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "greetings", "kind": "Greeting"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": OPEN}}
        ],
    },
}


async def main(path: str) -> None:
    configuration = client.Configuration()
    await config.load_kube_config(path, client_configuration=configuration)
    async with client.ApiClient(configuration) as api:
        custom = client.CustomObjectsApi(api)
        await client.ApiextensionsV1Api(api).create_custom_resource_definition(DEFINITION)
        body = {"apiVersion": "example.com/v1", "kind": "Greeting", "metadata": {"name": "g"}}
        operator = str(Path(__file__).parents[1] / "kopf_operator.py")
        command = [sys.executable, "-m", "kopf", "run", operator, "-n", "default"]
        process = subprocess.Popen(command, env={**os.environ, "KUBECONFIG": path})
        try:
            await custom.create_namespaced_custom_object(*ABOUT, {**body, "spec": {"to": "you"}})
            until = time.monotonic() + 120
            while True:
                obj = await custom.get_namespaced_custom_object(*ABOUT, "g")
                if obj.get("status", {}).get("greeted") == "you":
                    break
                assert process.poll() is None, "the operator has ended"
                assert time.monotonic() < until, obj
                await asyncio.sleep(0.1)
        finally:
            process.terminate()
            process.wait(60)


asyncio.run(main(sys.argv[1]))
