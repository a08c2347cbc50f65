"""The keeper of certificates notices at once what is broken, and does not fight."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast
from unittest.mock import MagicMock

import pytest

from kueuelib.api.kinds import CRDS, MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.embedded import ApiServer
from kueuelib.errors import Conflict, NotFound
from kueuelib.runtime.certificates import host_names, judge, server_context
from kueuelib.runtime.client import Client
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.webhook.trust import CertificateKeeper, Trusting, from_secret, with_bundle

SECRET = ObjectKey("default", "cert")
NAMES = host_names(["127.0.0.1"])
TRUSTING = (
    Trusting(MUTATING_WEBHOOKS, "m"),
    Trusting(VALIDATING_WEBHOOKS, "v"),
    Trusting(CRDS, "things.example.com", path="/convert"),
)
PROMPT = 5.0
"""Seconds in which a repair is due."""
VERSION = {"schema": {"openAPIV3Schema": {"type": "object"}}, "served": True}
CONVERTED: Obj = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "things", "kind": "Thing"},
        "scope": "Namespaced",
        "versions": [
            {"name": "v1", "storage": True, **VERSION},
            {"name": "v2", "storage": False, **VERSION},
        ],
        "conversion": {
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"url": "https://127.0.0.1:1/convert"},
            },
        },
    },
}


def configuration(resource: Resource, name: str) -> Obj:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["*"]}
    hook = {
        "name": "a.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/x"},
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "objectSelector": {"matchLabels": {"never": "there"}},
    }
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**head, "metadata": {"name": name}, "webhooks": [hook]}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ApiServer() as server, server.client() as made:
        for resource, name in ((MUTATING_WEBHOOKS, "m"), (VALIDATING_WEBHOOKS, "v")):
            await made.create(resource, configuration(resource, name))
        await made.create(CRDS, CONVERTED)
        yield made


@asynccontextmanager
async def kept(client: Client) -> AsyncIterator[CertificateKeeper]:
    keeper = CertificateKeeper(client, [server_context()], SECRET, NAMES, TRUSTING)
    ready = asyncio.Event()
    task = asyncio.create_task(keeper.run(ready.set))
    try:
        await asyncio.wait_for(ready.wait(), 60)
        yield keeper
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


def bundles(obj: Obj) -> set[bytes]:
    configs = (
        [each["clientConfig"] for each in obj["webhooks"]]
        if "webhooks" in obj
        else [obj["spec"]["conversion"]["webhook"]["clientConfig"]]
    )
    return {base64.b64decode(each.get("caBundle") or "") for each in configs}


async def trusted(client: Client) -> set[bytes]:
    """All authorities that are trusted."""
    found = set[bytes]()
    for one in TRUSTING:
        found |= bundles(await client.get(one.resource, ObjectKey("", one.name)))
    return found


async def set_bundle(client: Client, one: Trusting, authority: bytes) -> None:
    while True:
        obj = await client.get(one.resource, ObjectKey("", one.name))
        try:
            await client.replace(one.resource, with_bundle(obj, authority))
        except Conflict:
            continue
        return


async def within(seconds: float, check: Callable[[], object]) -> float:
    """Seconds until an awaited check holds."""
    began = time.monotonic()
    async with asyncio.timeout(seconds):
        while not await check():
            await asyncio.sleep(0.02)
    return time.monotonic() - began


@pytest.mark.parametrize("one", TRUSTING, ids=lambda one: one.resource.plural)
async def test_a_wrong_bundle_is_replaced_at_once(client, one) -> None:
    async with kept(client) as keeper:
        ca = keeper._loaded.ca_cert
        other = (await ca_of(client))[::-1]

        async def repaired() -> bool:
            return await trusted(client) == {ca}

        await within(PROMPT, repaired)
        await set_bundle(client, one, b"wrong" + other)
        await within(PROMPT, repaired)


async def ca_of(client: Client) -> bytes:
    found = from_secret(await client.get(SECRETS, SECRET))
    assert found is not None
    return found.ca_cert


@pytest.mark.parametrize("how", ["deleted", "emptied", "damaged"])
async def test_a_lost_secret_is_made_again_and_the_old_authority_stays_trusted(client, how) -> None:
    async with kept(client) as keeper:
        before = keeper._loaded
        if how == "deleted":
            await client.delete(SECRETS, SECRET)
        else:
            lost = {"tls.crt": None} if how == "emptied" else {"tls.key": "AAAA"}
            await client.patch(SECRETS, SECRET, {"data": lost}, PatchType.MERGE)

        async def made() -> bool:
            try:
                found = from_secret(await client.get(SECRETS, SECRET))
            except NotFound:
                return False
            return found is not None and not judge(found).problem and found == keeper._loaded

        await within(PROMPT, made)
        after = keeper._loaded
        assert after.ca_key != before.ca_key
        assert after.ca_cert.endswith(before.ca_cert)  # for replicas that have yet to load it
        assert await trusted(client) == {after.ca_cert}
        await client.delete(SECRETS, SECRET)
        await within(PROMPT, made)
        assert before.ca_cert not in keeper._loaded.ca_cert


async def test_replicas_that_lose_their_secret_agree_on_one(client) -> None:
    async with kept(client) as one, kept(client) as other:
        assert one._loaded == other._loaded
        before = one._loaded
        await client.delete(SECRETS, SECRET)

        async def agreed() -> bool:
            return one._loaded == other._loaded != before

        await within(PROMPT, agreed)
        assert await trusted(client) == {one._loaded.ca_cert}


async def test_a_program_that_keeps_writing_is_answered_less_and_less_often(client) -> None:
    target, theirs = TRUSTING[0], b"theirs"
    async with kept(client) as keeper:
        ours, writes = keeper._loaded.ca_cert, 0
        end = time.monotonic() + 8.0
        while time.monotonic() < end:
            obj = await client.get(target.resource, ObjectKey("", target.name))
            if bundles(obj) == {ours}:
                await set_bundle(client, target, theirs)
                writes += 1
            await asyncio.sleep(0.01)
        assert 2 <= writes <= 7  # pauses of 0.5, 1, 2 and 4 seconds, and the random parts


async def test_a_definition_that_converts_by_itself_is_left_alone(client) -> None:
    async with kept(client):
        none = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
        name = ObjectKey("", TRUSTING[2].name)
        await client.patch(CRDS, name, none, PatchType.MERGE)
        await set_bundle(client, TRUSTING[0], b"wrong")

        async def repaired() -> bool:
            obj = await client.get(MUTATING_WEBHOOKS, ObjectKey("", "m"))
            return bundles(obj) != {b"wrong"}

        await within(PROMPT, repaired)
        assert (await client.get(CRDS, name))["spec"]["conversion"]["strategy"] == "None"


@pytest.mark.parametrize("address", ["https://127.0.0.1:2/convert", "https://127.0.0.1:1"])
async def test_a_conversion_is_led_back_to_where_the_webhooks_are(client, address) -> None:
    name = ObjectKey("", TRUSTING[2].name)
    async with kept(client):
        there = {"conversion": {"webhook": {"clientConfig": {"url": address}}}}
        await client.patch(CRDS, name, {"spec": there}, PatchType.MERGE)

        async def restored() -> bool:
            crd = await client.get(CRDS, name)
            config = crd["spec"]["conversion"]["webhook"]["clientConfig"]
            return config["url"] == "https://127.0.0.1:1/convert"

        await within(PROMPT, restored)


def test_only_an_object_that_is_repaired_again_and_again_is_contested(monkeypatch) -> None:
    keeper = CertificateKeeper(cast(Client, None), [], SECRET, NAMES)
    told: list[list[str]] = []
    monkeypatch.setattr(keeper, "_log", MagicMock())
    keeper._log.warning = lambda _, objects, fix: told.append(objects)
    for repaired in (["a"], ["b"], ["c", "c"], ["a"], ["a", "b"]):
        keeper._repaired = repaired
        keeper._report()
    assert told == [["a"]]
