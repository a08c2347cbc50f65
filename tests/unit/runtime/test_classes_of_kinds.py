"""Classes for kinds that exist already: nothing of an object is lost, and mistakes are named."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import pytest
import structlog

from kueuelib.errors import ConfigError, NotFound, ServerError
from kueuelib.jobs import GenericJob, Integration
from kueuelib.runtime import (
    Cache,
    Client,
    Context,
    KubeObject,
    ObjectKey,
    Operator,
    PatchType,
    Quantity,
    Resource,
    Struct,
    decode,
    encode,
    field,
    frozen,
    kinds,
    wire,
)
from kueuelib.testing import eventually, running

Obj = dict[str, Any]
ONE = ObjectKey("default", "one")


@frozen
class Port(Struct):
    """Its number may be a name, too."""

    port: int = 0
    target_port: Any = None


@frozen
class Toleration(Struct):
    """Zero seconds are not the same as no limit."""

    key: str = ""
    toleration_seconds: int = 0


@frozen
class Anything(Struct):
    """A field of each type, with defaults that an API may not have."""

    number: int = 0
    size: int = 3
    share: float = 0.5
    text: str = ""
    on: bool = False
    mode: Literal["slow", "fast"] = "slow"
    amount: Quantity = Quantity.parse("1")
    maybe: int | None = None
    names: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(factory=dict)
    selector: Mapping[str, Any] | None = None
    ports: tuple[Port, ...] = ()
    tolerations: tuple[Toleration, ...] | None = None
    limited: int = field(default=0, metadata=wire(minimum=1))


@frozen
class Thing(KubeObject):
    """A kind that others define."""

    resource: ClassVar[Resource] = Resource("g.example.com", "v1", "things", "Thing", True)
    spec: Anything = Anything()
    data: Mapping[str, str] = field(factory=dict)


@frozen
class Replicas(Struct):
    """With a default that the API does not have."""

    replicas: int = 0


@frozen
class Deployment(KubeObject):
    """A built-in kind."""

    resource: ClassVar[Resource] = kinds.DEPLOYMENTS
    spec: Replicas = Replicas()


def thing(**spec: Any) -> Obj:
    return {"apiVersion": "g.example.com/v1", "kind": "Thing", "metadata": {}, "spec": spec}


# ---- round trips


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"number": 0, "size": 3, "share": 0.5, "text": "", "on": False, "mode": "slow"},
        {"amount": "1", "maybe": 0, "names": [], "labels": {}, "selector": {}, "limited": 0},
        {"ports": [], "tolerations": [], "ofTheFuture": {"a": [0, None, {}]}},
        {"ports": [{"port": 0}, {"port": 80, "targetPort": "http", "more": ""}, {}]},
        {"ports": [{"targetPort": 0}, {"targetPort": ""}]},
        {"tolerations": [{"key": "", "tolerationSeconds": 0}, {"key": "a"}]},
        {"number": None, "maybe": None, "names": None, "ofTheFuture": None},
    ],
)
def test_what_is_read_is_written_as_it_came(spec: Obj) -> None:
    for obj in (thing(**spec), {**thing(**spec), "data": {}, "status": {}}):
        before = copy.deepcopy(obj)
        value = decode(Thing, obj)
        changed = value.evolve(metadata=value.metadata.evolve(name="one"))
        assert encode(value) == obj == before
        assert encode(changed) == {**before, "metadata": {"name": "one"}}


def test_values_that_say_the_same_are_equal() -> None:
    stated = {"number": 0, "names": [], "mode": "slow"}
    assert decode(Thing, thing(**stated)).spec == decode(Thing, thing()).spec == Anything()
    assert "stated" not in repr(decode(Thing, thing(**stated)))


def test_what_returns_to_its_default_is_written_if_it_is_a_number_a_text_or_a_boolean() -> None:
    present = {"number": 7, "size": 1, "text": "a", "on": True, "mode": "fast"}
    other = {"maybe": 1, "names": ["a"], "labels": {"a": "b"}, "limited": 5}
    spec = decode(Thing, thing(**present, **other)).spec
    assert encode(spec) == {**present, **other}
    default = spec.evolve(number=0, size=3, text="", on=False, mode="slow")
    default = default.evolve(maybe=None, names=(), labels={}, limited=0)
    assert default == Anything()
    assert encode(default) == {"number": 0, "size": 3, "text": "", "on": False, "mode": "slow"}
    assert encode(default.evolve(number=9))["number"] == 9


def test_unknown_fields_that_a_program_changes_take_nothing_else_away() -> None:
    spec = decode(Thing, thing(number=0, more=1)).spec
    assert encode(spec.evolve(extra={**spec.extra, "less": 2})) == {
        "number": 0,
        "more": 1,
        "less": 2,
    }


def test_a_new_value_has_only_what_differs_from_its_defaults() -> None:
    assert encode(Thing.new("one", spec=Anything(number=0, size=4)))["spec"] == {"size": 4}


def template() -> Obj:
    pod = {"containers": [{"name": "c", "image": "i"}], "enableServiceLinks": False}
    return {"metadata": {"labels": {"a": "b"}}, "spec": pod}


async def deployed(client: Client, replicas: int) -> Obj:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": template()}
    return await client.create(
        kinds.DEPLOYMENTS, kinds.DEPLOYMENTS.new("one", "default", spec=spec)
    )


async def test_a_deployment_without_pods_stays_without_them(kube_client: Client) -> None:
    made = await deployed(kube_client, 0)
    deployments = kube_client.of(Deployment)
    await deployments.replace(await deployments.get(ONE))
    assert (await kube_client.get(kinds.DEPLOYMENTS, ONE))["spec"] == made["spec"]


async def test_a_deployment_is_scaled_to_zero(kube_client: Client) -> None:
    made = await deployed(kube_client, 3)
    deployments = kube_client.of(Deployment)
    one = await deployments.get(ONE)
    scaled = await deployments.replace(one.evolve(spec=one.spec.evolve(replicas=0)))
    assert scaled.spec.replicas == 0
    assert (await kube_client.get(kinds.DEPLOYMENTS, ONE))["spec"] == {
        **made["spec"],
        "replicas": 0,
    }


# ---- where such a class may be used


class ThingJob(GenericJob[Thing]):
    """Suspended by a field of the class."""

    def is_suspended(self) -> bool:
        return not self.object.spec.on

    def suspend(self) -> None:
        self.object = self.object.evolve(spec=self.object.spec.evolve(on=False))


ThingJob.__abstractmethods__ = frozenset()


def test_a_kind_of_jobs_has_the_class_as_its_object() -> None:
    ports = [{"port": 0, "more": 1}, {"targetPort": "http"}]
    obj = {**thing(on=True, number=0, ports=ports), "metadata": {"uid": "u", "name": "one"}}
    job = ThingJob(copy.deepcopy(obj)).suspended_copy()
    assert job.is_suspended()
    assert job.raw == {**obj, "spec": {**obj["spec"], "on": False}}
    job.object = job.object.evolve(spec=job.object.spec.evolve(ports=job.object.spec.ports[:1]))
    assert job.raw["spec"]["ports"] == ports[:1]
    assert Integration.of(ThingJob).resource == Thing.resource


async def test_an_operator_reconciles_owns_and_watches_it(kube_client: Client) -> None:
    app, seen = Operator("classes"), set[int]()

    @frozen
    class Map(KubeObject):
        resource: ClassVar[Resource] = kinds.CONFIG_MAPS
        data: Mapping[str, str] = field(factory=dict)

    @app.reconciles(Deployment, owns=[Map], watches={kinds.SECRETS: lambda delta: [delta.key]})
    async def count(obj: Deployment, context: Context) -> None:
        seen.add(obj.spec.replicas)
        await context.apply(Map.new(obj.name, data={"replicas": str(obj.spec.replicas)}))

    assert app.definitions == ()
    await deployed(kube_client, 0)
    async with running(app, kube_client):
        made = await eventually(lambda: kube_client.of(Map).get(ONE))
        assert made.data == {"replicas": "0"}
        assert made.metadata.owner_references[0].kind == "Deployment"
        scale = {"spec": {"replicas": 2}}
        await kube_client.of(Deployment).patch(ONE, scale, PatchType.MERGE)
        assert await eventually(lambda: seen == {0, 2})
    informer = Cache(kube_client).informer(Deployment)
    assert informer.resource == kinds.DEPLOYMENTS


# ---- mistakes


@frozen
class Nameless(KubeObject):
    """Says no kind."""


class Plain(KubeObject):
    """Is not decorated."""

    resource: ClassVar[Resource] = kinds.DEPLOYMENTS
    spec: Replicas = Replicas()


class PlainSpec(Struct):
    """Is not decorated either."""

    replicas: int = 0


@frozen
class Outer(KubeObject):
    """Has such a part."""

    resource: ClassVar[Resource] = kinds.DEPLOYMENTS
    spec: PlainSpec = PlainSpec()


@frozen
class Instance(KubeObject):
    """Its kind is a field."""

    resource: Resource = kinds.DEPLOYMENTS  # type: ignore[misc]


@frozen
class Undecided(Struct):
    """Has a field of two types."""

    port: int | str | None = None


WRITE = "write resource: ClassVar[Resource] = kinds.PODS, or whichever kind it is"


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (
            lambda client: client.of(Nameless),
            f"Nameless: has no resource; decorate it with @crd, or for a kind that exists {WRITE}",
        ),
        (lambda client: client.of(Instance), f"Instance: resource is a field; {WRITE}"),
        (
            lambda _: decode(Plain, kinds.DEPLOYMENTS.new("a", spec={})),
            "Plain: its fields would be lost; put @frozen of kueuelib.runtime above it",
        ),
        (
            lambda _: decode(Outer, kinds.DEPLOYMENTS.new("a", spec={})),
            "PlainSpec: its fields would be lost; put @frozen of kueuelib.runtime above it",
        ),
        (
            lambda _: decode(Undecided, {}),
            "Undecided.port: the type int | str | None cannot be read; write port: Any",
        ),
    ],
)
def test_a_class_that_cannot_work_is_refused(use: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        use(Client.__new__(Client))
    assert re.sub(r"^.*, line \d+: ", "", str(caught.value)) == said


@pytest.mark.parametrize(
    ("resource", "near"),
    [
        (Resource("apps", "v1", "deployment", "Deployment", True), "; did you mean deployments?"),
        (Resource("app", "v1", "deployments", "Deployment", True), "; or did you mean apps/v1?"),
        (Resource("apps", "v1", "unknown", "Unknown", True), "; install what serves it"),
    ],
)
async def test_a_kind_that_is_not_served_names_the_nearest_one(
    kube_client: Client, resource: Resource, near: str
) -> None:
    wrong = frozen(type("Wrong", (KubeObject,), {"resource": resource}))
    wrongs = kube_client.of(wrong)
    for call in (
        lambda: wrongs.get(ONE),
        wrongs.list,
        lambda: wrongs.create(wrong.new("one", "default")),
        lambda: wrongs.replace(wrong.new("one", "default")),
        lambda: wrongs.apply(wrong.new("one", "default")),
        lambda: wrongs.patch(ONE, {}, PatchType.MERGE),
        lambda: wrongs.delete(ONE),
    ):
        with pytest.raises(
            NotFound, match=re.escape(f"is not served in {resource.api_version}")
        ) as e:
            await call()
        assert near in str(e.value)


async def test_an_object_that_does_not_exist_is_just_not_found(kube_client: Client) -> None:
    with pytest.raises(NotFound, match='^deployments.apps "one" not found$'):
        await kube_client.of(Deployment).get(ONE)


@frozen
class Misspelt(Struct):
    """Has a field that a Deployment does not have."""

    replica: int | None = None


@frozen
class Mistaken(KubeObject):
    """A Deployment with a wrong field."""

    resource: ClassVar[Resource] = kinds.DEPLOYMENTS
    spec: Misspelt = Misspelt()


async def test_a_field_that_the_api_does_not_have_is_named_when_it_is_written(
    kube_client: Client,
) -> None:
    await deployed(kube_client, 1)
    mistaken = kube_client.of(Mistaken)
    one = await mistaken.get(ONE)
    assert one.spec.replica is None
    with structlog.testing.capture_logs() as lines:
        await mistaken.replace(one.evolve(spec=one.spec.evolve(replica=4)))
    (line,) = [each for each in lines if each["event"] == "the API server warns"]
    assert line["warning"] == 'unknown field "spec.replica"'
    assert line["path"] == "/apis/apps/v1/namespaces/default/deployments/one"
    with pytest.raises(ServerError, match=r"\.spec\.replica: field not declared in schema"):
        await mistaken.apply(Mistaken.new("one", "default", spec=Misspelt(replica=4)))


@frozen
class Limited(Struct):
    """A port that is absent or positive."""

    port: int = field(default=0, metadata=wire(minimum=1))
    text: str = ""


def test_what_a_schema_limits_is_removed_when_it_returns_to_its_default() -> None:
    read = decode(Limited, {"port": 4, "text": "a"})
    assert encode(read.evolve(port=0, text="")) == {"text": ""}
