"""Models of kubernetes_asyncio, and its generated APIs, on an API server of the test's own."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import pytest
from aiohttp import ClientTimeout
from kubernetes_asyncio import client as k8s
from kubernetes_asyncio import watch

from kueuelib import submit
from kueuelib.api.kinds import VALIDATING_WEBHOOKS
from kueuelib.controllers.webhooks import by_url
from kueuelib.errors import ConfigError, Conflict, Invalid, LeadershipLost, NotFound
from kueuelib.machinery.store import Delta
from kueuelib.runtime import (
    Cache,
    Client,
    Context,
    FieldError,
    Obj,
    ObjectKey,
    Operator,
    PatchType,
    decode,
    key_of,
    kinds,
)
from kueuelib.runtime.operator.hooks import hook_configurations
from kueuelib.testing import eventually, running, settled

META = k8s.V1ObjectMeta(name="one", namespace="default")
ONE = ObjectKey("default", "one")


def config_map(**data: str) -> k8s.V1ConfigMap:
    return k8s.V1ConfigMap(metadata=copy.deepcopy(META), data=data)


def job(**spec: Any) -> k8s.V1Job:
    container = k8s.V1Container(name="c", image="x")
    pod = k8s.V1PodSpec(restart_policy="Never", containers=[container])
    template = k8s.V1PodTemplateSpec(spec=pod)
    return k8s.V1Job(
        metadata=copy.deepcopy(META), spec=k8s.V1JobSpec(template=template, suspend=True, **spec)
    )


def deployment() -> k8s.V1Deployment:
    pod = k8s.V1PodSpec(containers=[k8s.V1Container(name="c", image="x")])
    template = k8s.V1PodTemplateSpec(metadata=k8s.V1ObjectMeta(labels={"a": "b"}), spec=pod)
    selector = k8s.V1LabelSelector(match_labels={"a": "b"})
    return k8s.V1Deployment(
        metadata=copy.deepcopy(META),
        spec=k8s.V1DeploymentSpec(selector=selector, template=template),
    )


# ---- the verbs of the client --------------------------------------------------------------------


async def test_every_verb_that_writes_takes_models(kube_client: Client) -> None:
    made = await kube_client.create(kinds.CONFIG_MAPS, config_map(a="1"))
    version = made["metadata"]["resourceVersion"]
    replaced = config_map(a="2")
    replaced.metadata.resource_version = version
    await kube_client.replace(kinds.CONFIG_MAPS, replaced)
    patch = k8s.V1ConfigMap(data={"b": "3"})
    await kube_client.patch(kinds.CONFIG_MAPS, ONE, patch, PatchType.MERGE)
    await kube_client.patch(
        kinds.CONFIG_MAPS,
        ONE,
        {"metadata": k8s.V1ObjectMeta(labels={"l": "m"})},
        PatchType.STRATEGIC,
    )
    got = await kube_client.apply(kinds.CONFIG_MAPS, config_map(c="4"))
    assert got["data"] == {"a": "2", "b": "3", "c": "4"}
    assert got["metadata"]["labels"] == {"l": "m"}
    mixed = kinds.JOBS.new("one", "default", spec=job().spec)
    assert (await kube_client.create(kinds.JOBS, mixed))["spec"]["suspend"] is True


async def test_objects_come_as_models(kube_client: Client) -> None:
    jobs = kube_client.of(k8s.V1Job)
    made = await jobs.create(job())
    assert isinstance(made, k8s.V1Job)
    assert made.metadata.uid
    assert made.metadata.creation_timestamp.tzinfo is not None
    made.spec.parallelism = 3
    replaced = await jobs.replace(made)
    assert replaced.spec.parallelism == 3
    (listed,) = await jobs.list("default", label_selector="!none")
    assert listed == replaced
    wanted = job()
    wanted.metadata.labels = {"a": "b"}
    assert (await jobs.apply(wanted)).metadata.labels["a"] == "b"
    assert (await jobs.apply(await jobs.get(ONE))).spec.parallelism == 3, "as it was read"
    await jobs.delete(ONE, propagation="Background")
    with pytest.raises(NotFound):
        await jobs.get(ONE)


async def test_unknown_fields_survive_a_change(kube_client: Client) -> None:
    """A CRD of ours has fields that the class of a Job does not."""
    columns = [{"name": "A", "type": "string", "jsonPath": ".a", "priority": 1}]
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    raw = kinds.CRDS.new(
        "things.example.com",
        spec={
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": schema,
                    "additionalPrinterColumns": columns,
                }
            ],
        },
    )
    await kube_client.create(kinds.CRDS, raw)
    typed = kube_client.of(k8s.V1CustomResourceDefinition)
    found = await typed.get(ObjectKey("", "things.example.com"))
    before = await kube_client.get(kinds.CRDS, ObjectKey("", "things.example.com"))
    found.spec.versions[0].additional_printer_columns[0].description = "said"
    after = dict(await kube_client.replace(kinds.CRDS, found))
    assert after["spec"]["versions"][0].pop("additionalPrinterColumns") == [
        {**columns[0], "description": "said"}
    ]
    del before["spec"]["versions"][0]["additionalPrinterColumns"]
    assert after["spec"] == before["spec"]


async def test_a_class_that_is_no_kind_is_refused(kube_client: Client) -> None:
    with pytest.raises(ConfigError, match="V1PodSpec: is not the class of a kind; name one such"):
        kube_client.of(k8s.V1PodSpec)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match=r"V1Pod: is not a Resource; use client.of\(V1Pod\)"):
        await kube_client.get(k8s.V1Pod, ONE)  # type: ignore[arg-type]


# ---- informers and operators --------------------------------------------------------------------


async def test_an_informer_hands_out_models_that_may_be_changed(kube_client: Client) -> None:
    cache = Cache(kube_client)
    view = cache.informer(k8s.V1ConfigMap, namespace="default")
    assert cache.informer(k8s.V1ConfigMap, namespace="default") is view
    synced = asyncio.Event()
    running_cache = asyncio.create_task(cache.run(synced.set))
    await synced.wait()
    try:
        view.learn(await kube_client.of(k8s.V1ConfigMap).create(config_map(a="1")))
        found = view.get(ONE)
        assert found is not None
        found.data["a"] = "2"
        again = view.get(ONE)
        assert again is not None
        assert again.data == {"a": "1"}
        assert [each.data for each in view.items("default") if each.data.get("a")] == [{"a": "1"}]
    finally:
        running_cache.cancel()


async def test_an_operator_reconciles_models(kube_client: Client) -> None:
    app = Operator("jobs", namespace="default")

    @app.reconciles(k8s.V1Job, owns=[k8s.V1ConfigMap], watches={k8s.V1Secret: _named})
    async def reconcile(found: k8s.V1Job, context: Context) -> None:
        meta = k8s.V1ObjectMeta(name=f"{found.metadata.name}-child")
        assert found.spec.template.spec.containers[0].image == "x"
        secret = context.get(k8s.V1Secret, found.metadata.name)
        data = {"seen": "yes" if secret else "no"}
        await context.apply(k8s.V1ConfigMap(metadata=meta, data=data))
        nested = {"metadata": k8s.V1ObjectMeta(name="nested"), "data": data}
        await context.apply({"apiVersion": "v1", "kind": "ConfigMap", **nested})
        found.spec.template.spec.containers[0].image = "changed"  # in memory, for nobody else
        assert len(context.children(k8s.V1ConfigMap)) <= 2

    @app.defaults(k8s.V1Job)
    def default(given: k8s.V1Job) -> k8s.V1Job:
        given.metadata.labels = {"by": "default"}
        return given

    @app.validates(k8s.V1Job)
    def check(new: k8s.V1Job) -> list[FieldError]:
        if new.spec.parallelism == 7:
            return [FieldError("spec.parallelism", "FieldValueInvalid", "not seven")]
        return []

    async with running(app, kube_client):
        made = await kube_client.of(k8s.V1Job).create(job())
        assert made.metadata.labels["by"] == "default"
        children = kube_client.of(k8s.V1ConfigMap)
        key = ObjectKey("default", "one-child")
        child = await eventually(lambda: children.get(key))
        (owner,) = child.metadata.owner_references
        assert (owner.kind, owner.uid, child.data) == ("Job", made.metadata.uid, {"seen": "no"})
        await kube_client.create(kinds.SECRETS, k8s.V1Secret(metadata=copy.deepcopy(META)))

        async def has_seen() -> bool:
            return (await children.get(key)).data == {"seen": "yes"}

        await eventually(has_seen)
        assert (await children.get(ObjectKey("default", "nested"))).data
        with pytest.raises(Exception, match="not seven"):
            await kube_client.of(k8s.V1Job).replace(
                _parallel(await kube_client.of(k8s.V1Job).get(ONE), 7)
            )


def _named(delta: Delta[Obj]) -> list[ObjectKey]:
    return [delta.key]


def _parallel(found: k8s.V1Job, number: int) -> k8s.V1Job:
    found.spec.parallelism = number
    return found


def _seen(found: k8s.V1StatefulSet) -> k8s.V1StatefulSetStatus:
    return k8s.V1StatefulSetStatus(
        replicas=found.spec.replicas, observed_generation=found.metadata.generation
    )


async def test_a_status_may_be_a_model(kube_client: Client) -> None:
    app = Operator("deployments", namespace="default")

    @app.reconciles(k8s.V1StatefulSet)
    async def reconcile(found: k8s.V1StatefulSet, context: Context) -> None:
        context.report(_seen(found))

    pod = k8s.V1PodTemplateSpec(
        metadata=k8s.V1ObjectMeta(labels={"a": "b"}),
        spec=k8s.V1PodSpec(containers=[k8s.V1Container(name="c", image="x")]),
    )
    selector = k8s.V1LabelSelector(match_labels={"a": "b"})
    spec = k8s.V1StatefulSetSpec(replicas=4, selector=selector, service_name="s", template=pod)
    async with running(app, kube_client):
        sets = kube_client.of(k8s.V1StatefulSet)
        made = await sets.create(k8s.V1StatefulSet(metadata=copy.deepcopy(META), spec=spec))
        assert (await settled(kube_client, made)).status.replicas == 4


async def test_a_kind_without_status_is_named(kube_client: Client) -> None:
    app = Operator("plain", namespace="default")
    said: list[str] = []

    @app.reconciles(k8s.V1ConfigMap)
    async def reconcile(_: k8s.V1ConfigMap, context: Context) -> None:
        for call in (partial(context.report, {}), partial(context.condition, "A", True, "Fine")):
            with pytest.raises(ConfigError) as caught:
                call()
            said.append(str(caught.value))

    async with running(app, kube_client):
        await kube_client.of(k8s.V1ConfigMap).create(config_map())
        await eventually(lambda: len(said) >= 2)
    fix = "write an event, or the status of an object of your own kind"
    assert set(said) == {f"ConfigMap: has no field status; {fix}"}


async def test_a_condition_has_the_fields_of_its_class(kube_client: Client) -> None:
    app = Operator("conditions", namespace="default")

    @app.reconciles(k8s.V1Deployment)
    async def reconcile(_: k8s.V1Deployment, context: Context) -> None:
        context.condition("Exposed", True, "Fine")

    async with running(app, kube_client):
        await kube_client.of(k8s.V1Deployment).create(deployment())

        async def conditions() -> Any:
            found = await kube_client.get(kinds.DEPLOYMENTS, ONE)
            return (found.get("status") or {}).get("conditions")

        (condition,) = await eventually(conditions)
    assert condition["type"] == "Exposed"
    assert "observedGeneration" not in condition


async def test_webhook_configurations_are_what_they_were_after_a_test(kube_client: Client) -> None:
    app = Operator("guard", namespace="default")

    @app.validates(k8s.V1ConfigMap)
    def check(_: k8s.V1ConfigMap) -> list[FieldError]:
        return [FieldError("data", "FieldValueInvalid", "never")]

    async def fail_in_block() -> None:
        async with running(app, kube_client):
            with pytest.raises(Exception, match="never"):
                await kube_client.create(kinds.CONFIG_MAPS, config_map())
            raise ValueError

    with pytest.raises(ValueError, match="^$"):
        await fail_in_block()
    assert not (await kube_client.list(VALIDATING_WEBHOOKS)).items
    (mine,) = hook_configurations(app, by_url("https://127.0.0.1:1"))
    mine["webhooks"][0]["failurePolicy"] = "Ignore"
    before = await kube_client.create(VALIDATING_WEBHOOKS, mine)
    with pytest.raises(ValueError, match="^$"):
        await fail_in_block()
    after = await kube_client.get(VALIDATING_WEBHOOKS, key_of(mine))
    assert after["webhooks"] == before["webhooks"]
    await kube_client.create(kinds.CONFIG_MAPS, config_map())


# ---- generated APIs -----------------------------------------------------------------------------


@pytest.fixture
async def batch(kube_client: Client) -> AsyncIterator[k8s.BatchV1Api]:
    async with kube_client.api_client() as api:
        yield k8s.BatchV1Api(api)


async def test_generated_apis_read_and_write(kube_client: Client, batch: k8s.BatchV1Api) -> None:
    made = await batch.create_namespaced_job("default", job(), dry_run="All")
    assert made.metadata.name == "one"
    with pytest.raises(k8s.ApiException) as caught:
        await batch.read_namespaced_job("one", "default")
    assert (caught.value.status, caught.value.reason) == (404, "Not Found")
    assert '"code":404' in caught.value.body
    await batch.create_namespaced_job("default", job())
    found = await batch.read_namespaced_job("one", "default")
    found.spec.parallelism = 2
    replaced = await batch.replace_namespaced_job("one", "default", found, field_manager="me")
    assert replaced.spec.parallelism == 2
    body = {"spec": {"parallelism": 5}}
    patched = await batch.patch_namespaced_job("one", "default", body)
    assert patched.spec.parallelism == 5
    listed = await batch.list_namespaced_job("default", label_selector="!none", limit=1)
    assert [each.metadata.name for each in listed.items] == ["one"]
    data, status, headers = await batch.read_namespaced_job_with_http_info("one", "default")
    assert (data.kind, status, headers["content-type"]) == ("Job", 200, "application/json")
    raw = await batch.read_namespaced_job("one", "default", _preload_content=False)
    assert (await raw.json())["metadata"]["name"] == "one"
    options = k8s.V1DeleteOptions(propagation_policy="Background")
    await batch.delete_namespaced_job("one", "default", body=options)
    with pytest.raises(NotFound):
        await kube_client.get(kinds.JOBS, ONE)


async def test_a_watch_resumes_where_it_was(kube_client: Client, batch: k8s.BatchV1Api) -> None:
    await batch.create_namespaced_job("default", job())
    async with watch.Watch() as stream, asyncio.timeout(30):
        events = stream.stream(batch.list_namespaced_job, "default", timeout_seconds=1)
        seen = [event["type"] async for event in events]
        version = stream.resource_version
    assert seen == ["ADDED"]
    await batch.patch_namespaced_job("one", "default", {"spec": {"parallelism": 2}})
    async with watch.Watch() as stream, asyncio.timeout(30):
        changes = stream.stream(batch.list_namespaced_job, "default", resource_version=version)
        async for event in changes:
            assert event["type"] == "MODIFIED"
            assert event["object"].spec.parallelism == 2
            break
    async with watch.Watch() as stream:
        with pytest.raises(k8s.ApiException) as caught:
            async for _ in stream.stream(
                batch.list_namespaced_job, "default", resource_version="x", timeout_seconds=5
            ):
                pass
    assert caught.value.status >= 400


async def test_a_stream_is_read_in_pieces(kube_client: Client) -> None:
    async with kube_client.api_client() as api:
        core = k8s.CoreV1Api(api)
        for name in ("a", "b"):
            await core.create_namespaced_config_map(
                "default", k8s.V1ConfigMap(metadata=k8s.V1ObjectMeta(name=name))
            )
        answer = await core.list_namespaced_config_map(
            "default", watch=True, timeout_seconds=1, _preload_content=False
        )
        first = await answer.content.read(9)
        rest = await answer.content.readline()
        assert (first + rest).endswith(b"}\n")
        assert len([line async for line in answer.content]) >= 1
        answer.release()
        quiet = await core.list_namespaced_secret(
            "default", watch=True, _preload_content=False, _request_timeout=(5, 0.2)
        )
        with pytest.raises(TimeoutError):
            await quiet.content.readline()
        for limit in (0.3, ClientTimeout(total=0.3)):
            watched = await core.list_namespaced_config_map(
                "default", watch=True, _preload_content=False, _request_timeout=limit
            )
            with pytest.raises(TimeoutError):
                await watched.content.read()
        async with await core.list_namespaced_config_map("default", _preload_content=False) as all_:
            assert all_.ok
            pieces = [piece async for piece in all_.content.iter_chunked(40)]
        assert all(len(piece) <= 40 for piece in pieces)
        assert len(json.loads(b"".join(pieces))["items"]) == 2


async def test_a_typed_client_patches(kube_client: Client) -> None:
    maps = kube_client.of(k8s.V1ConfigMap)
    await maps.create(config_map(a="1"))
    patched = await maps.patch(ONE, {"metadata": {"labels": {"x": "y"}}}, PatchType.MERGE)
    assert (patched.metadata.labels, patched.data) == ({"x": "y"}, {"a": "1"})
    await maps.delete(ONE, propagation="Background", grace_period=0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.get(kinds.PODS, "x"), "Pod 'x': is not a key; give an ObjectKey"),
        (lambda c: c.of(k8s.V1Pod).delete(("d", "x")), r"Pod \('d', 'x'\): is not a key"),
        (lambda c: c.of(k8s.V1Pod()), "a V1Pod: is an object, not a kind; give the class V1Pod"),
        (
            lambda c: c.create(kinds.CONFIG_MAPS, k8s.V1PodSpec(containers=[])),
            "a V1PodSpec: is not a whole object; give raw JSON",
        ),
        (lambda c: c.list(k8s.V1Pod, "d"), r"V1Pod: is not a Resource; use client.of\(V1Pod\)"),
        (lambda c: c.watch(k8s.V1Pod, "d"), "V1Pod: is not a Resource"),
        (lambda c: c.delete_collection(k8s.V1Pod, "d"), "V1Pod: is not a Resource"),
        (lambda c: c.patch(kinds.PODS, ONE, {}, "merge"), "'merge': is not a type of patches"),
        (
            lambda c: submit(job(), queue="q", client=c.api_client()),
            "is a ConnectedApiClient",
        ),
    ],
)
async def test_what_is_easily_confused_is_named(kube_client: Client, call: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        await call(kube_client)


async def test_a_model_is_learned(kube_client: Client) -> None:
    cache = Cache(kube_client)
    maps = cache.informer(kinds.CONFIG_MAPS)
    async with anyio.create_task_group() as group:
        group.start_soon(cache.run, lambda: None)
        await maps.wait_synced(30)
        made = await kube_client.of(k8s.V1ConfigMap).create(config_map(a="1"))
        cache.learn(made)
        assert maps.store.get(ONE) is not None
        maps.learn(made)
        with pytest.raises(ConfigError, match="the handler later: is async, but handlers never"):
            maps.add_handler(later)
        group.cancel_scope.cancel()


async def later(_: Any) -> None:
    """A handler that nobody would await."""


def service(port: int) -> k8s.V1Service:
    spec = k8s.V1ServiceSpec(ports=[k8s.V1ServicePort(port=port)])
    return k8s.V1Service(metadata=copy.deepcopy(META), spec=spec)


async def old_service(client: Client, **more: str) -> None:
    """What a program on generated APIs writes."""
    made = service(80)
    made.metadata.labels = {"old": "yes"}
    await k8s.CoreV1Api(client.api_client()).create_namespaced_service("default", made, **more)


async def is_ours(client: Client) -> bool:
    now = await client.of(k8s.V1Service).get(ONE)
    labels = now.metadata.labels or {}
    return [each.port for each in now.spec.ports] == [8080] and "old" not in labels


@pytest.mark.parametrize("argument", ["owns", "writes"])
async def test_the_fields_of_an_earlier_program_are_taken_over(
    kube_client: Client, argument: str
) -> None:
    await old_service(kube_client, field_manager="hand")
    await kube_client.of(k8s.V1Deployment).create(deployment())
    app = Operator("exposer")
    kinds_of: Any = {argument: [k8s.V1Service]}

    @app.reconciles(k8s.V1Deployment, **kinds_of)
    async def expose(obj: k8s.V1Deployment, context: Context) -> None:
        wanted = service(8080)
        wanted.metadata.name = obj.metadata.name
        await context.apply(wanted, adopt=["hand"])

    async with running(app, kube_client):
        await eventually(lambda: is_ours(kube_client))


async def test_a_typed_client_takes_over_what_was_written_before(kube_client: Client) -> None:
    services = kube_client.of(k8s.V1Service)
    await services.apply(service(8080), adopt=["kueuelib"])
    await services.delete(ONE)
    await old_service(kube_client)
    with pytest.raises(Invalid, match="name"):
        await services.apply(service(8080))
    with pytest.raises(ConfigError, match=r"adopt: is 'kueuelib'; write adopt=\['kueuelib'\]"):
        await services.apply(service(8080), adopt="kueuelib")
    await services.apply(service(8080), adopt=[kube_client.field_manager])
    assert await is_ours(kube_client)


async def test_writes_reach_a_cache_and_obey_the_guard(kube_client: Client) -> None:
    learned: list[Obj] = []
    api = k8s.CoreV1Api(kube_client.api_client(learned.append))
    made = config_map(a="1")
    await api.create_namespaced_config_map("default", made)
    await api.read_namespaced_config_map("one", "default")
    assert [each["data"] for each in learned] == [{"a": "1"}]

    def refuse() -> None:
        raise LeadershipLost("gone")

    guarded = k8s.CoreV1Api(kube_client.guarded(refuse).api_client())
    await guarded.read_namespaced_config_map("one", "default")
    with pytest.raises(LeadershipLost):
        await guarded.delete_namespaced_config_map("one", "default")


async def test_a_deletion_reaches_a_cache(kube_client: Client) -> None:
    cache = Cache(kube_client)
    maps, others = cache.informer(kinds.CONFIG_MAPS), cache.informer(kinds.SECRETS)
    core = k8s.CoreV1Api(kube_client.api_client(cache.learn))
    async with anyio.create_task_group() as group:
        group.start_soon(cache.run)
        await cache.wait_synced(30)
        await core.create_namespaced_config_map("default", config_map(a="1"))
        await core.create_namespaced_secret("default", k8s.V1Secret(metadata=copy.deepcopy(META)))
        assert maps.store.get(ONE) is not None
        await core.delete_namespaced_config_map("one", "default", dry_run="All")
        options = k8s.V1DeleteOptions(dry_run=["All"])
        await core.delete_namespaced_config_map("one", "default", body=options)
        assert maps.store.get(ONE) is not None
        await core.delete_namespaced_config_map("one", "default")
        assert maps.store.get(ONE) is None
        assert others.store.get(ONE) is not None
        group.cancel_scope.cancel()


async def test_what_belongs_to_the_connection_is_refused(kube_client: Client) -> None:
    api = kube_client.api_client()
    api.set_default_header("Impersonate-User", "boss")
    with pytest.raises(ConfigError, match="the header impersonate-user: cannot be set for one"):
        await k8s.CoreV1Api(api).list_namespace()


async def test_the_dict_of_a_model_is_refused_before_it_loses_fields(kube_client: Client) -> None:
    meta = k8s.V1ObjectMeta(name="one", namespace="default")
    model = k8s.V1ConfigMap(metadata=meta, binary_data={"a": "aGVsbG8="})
    for write in (kube_client.create, kube_client.replace, kube_client.apply):
        with pytest.raises(ConfigError, match=r"api_version.* give the model itself, or encode"):
            await write(kinds.CONFIG_MAPS, model.to_dict())
    assert (await kube_client.create(kinds.CONFIG_MAPS, model))["binaryData"] == {"a": "aGVsbG8="}


async def test_what_the_server_returned_can_be_applied_again(kube_client: Client) -> None:
    new = kinds.CONFIG_MAPS.new("one", "default", data={"a": "a"})
    made = await kube_client.create(kinds.CONFIG_MAPS, new)
    assert made["metadata"]["managedFields"]
    again = await kube_client.apply(kinds.CONFIG_MAPS, {**made, "data": {"a": "b"}})
    assert again["data"] == {"a": "b"}
    model = decode(k8s.V1ConfigMap, again)
    same = await kube_client.patch(kinds.CONFIG_MAPS, key_of(again), model, PatchType.APPLY)
    assert same["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
    with pytest.raises(Conflict, match="has been modified"):
        await kube_client.apply(kinds.CONFIG_MAPS, made)
