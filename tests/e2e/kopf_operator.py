"""A small operator as strangers write it with kopf: a Greeting makes a ConfigMap."""

from __future__ import annotations

import kopf
import kubernetes_asyncio.client as kube
import kubernetes_asyncio.config as kube_config


@kopf.on.startup()
async def configure(settings, **_):
    settings.posting.level = 20
    await kube_config.load_kube_config()


@kopf.on.create("example.com", "v1", "greetings")
async def made(spec, name, namespace, patch, body, **_):
    text = {"text": f"hello {spec['to']}"}
    config = {"metadata": {"name": name}, "data": text}
    kopf.adopt(config)
    async with kube.ApiClient() as api:
        await kube.CoreV1Api(api).create_namespaced_config_map(namespace, config)
    patch.status["greeted"] = spec["to"]
    kopf.info(body, reason="Greeted", message=f"greeted {spec['to']}")


@kopf.on.update("example.com", "v1", "greetings", field="spec.to")
async def changed(new, name, namespace, patch, **_):
    body = {"data": {"text": f"hello {new}"}}
    async with kube.ApiClient() as api:
        await kube.CoreV1Api(api).patch_namespaced_config_map(name, namespace, body)
    patch.status["greeted"] = new


@kopf.on.delete("example.com", "v1", "greetings")
async def leaving(name, namespace, **_):
    async with kube.ApiClient() as api:
        await kube.CoreV1Api(api).create_namespaced_config_map(
            namespace, {"metadata": {"name": f"bye-{name}"}}
        )
