"""Keeps a ConfigMap with a text for every Greeting."""

import datetime as dt
import logging

import kopf
import kubernetes_asyncio.client as kube
import kubernetes_asyncio.config as kube_config

GREETINGS = ("example.com", "v1", "greetings")
LABEL = "example.com/greeting"


@kopf.on.startup()
async def configure(settings, memo, **_):
    """Connect once; no Events and no lines per object, as the others write none."""
    settings.posting.level = logging.ERROR
    settings.persistence.finalizer = "example.com/unused"
    await kube_config.load_kube_config()
    memo.core = kube.CoreV1Api(kube.ApiClient())


@kopf.index(*GREETINGS)
def bodies(namespace, name, body, **_):
    """The Greetings, for the handler of ConfigMaps."""
    return {(namespace, name): body}


@kopf.on.create(*GREETINGS)
@kopf.on.resume(*GREETINGS)
@kopf.on.update(*GREETINGS, field="spec.text")
async def greet(body, status, patch, memo, **_):
    """Write the ConfigMap, and say so."""
    await write(body, memo.core)
    patch.status["observedGeneration"] = body["metadata"]["generation"]
    known = [each for each in status.get("conditions", ()) if each["type"] == "Ready"]
    if not known:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        message = "the ConfigMap has the text"
        condition = {"type": "Ready", "status": "True", "reason": "Written", "message": message}
        patch.status["conditions"] = [{**condition, "lastTransitionTime": now}]


@kopf.on.event("v1", "configmaps", labels={LABEL: kopf.PRESENT})
async def restore(type, namespace, name, body, bodies, memo, **_):
    """Bring back what somebody else changed or deleted."""
    for greeting in bodies.get((namespace, name), ()):
        if type == "DELETED" or body.get("data") != {"text": greeting["spec"]["text"]}:
            await write(greeting, memo.core)


async def write(greeting, core):
    """Create or replace the ConfigMap of a Greeting."""
    meta = greeting["metadata"]
    config = {"metadata": {"name": meta["name"], "labels": {LABEL: meta["name"]}}}
    config["data"] = {"text": greeting["spec"]["text"]}
    kopf.append_owner_reference(config, owner=greeting)
    try:
        await core.create_namespaced_config_map(meta["namespace"], config)
    except kube.ApiException as error:
        if error.status != 409:
            raise
        await core.replace_namespaced_config_map(meta["name"], meta["namespace"], config)
