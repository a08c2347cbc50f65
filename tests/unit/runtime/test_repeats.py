"""Objects that are reconciled again and again because each round causes the next one."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes_asyncio.client import CustomObjectsApi
from structlog.testing import capture_logs

from kueuelib.api.meta import ObjectKey
from kueuelib.machinery.store import Delta, DeltaKind
from kueuelib.runtime import (
    Client,
    ConditionedStatus,
    Context,
    KubeObject,
    Obj,
    Operator,
    PatchType,
    Result,
    Struct,
    crd,
    frozen,
    kinds,
)
from kueuelib.runtime.operator.repeats import (
    MANY,
    OFTEN,
    SOON,
    WITHIN,
    Cause,
    ObservedChange,
    Repeats,
    RepeatWarning,
    Round,
)
from kueuelib.testing import eventually, running, settled

KEY = ObjectKey("ns", "a")
MAPS, SECRETS = kinds.CONFIG_MAPS, kinds.SECRETS


class Rounds:
    """Notes rounds about one object, at a time that only `seconds` sets."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.repeats = Repeats(lambda: self.seconds)
        self.version = 0

    def obj(self, **parts: Any) -> Obj:
        self.version += 1
        return {"metadata": {"name": "a", "resourceVersion": str(self.version)}, **parts}

    def change(self, subject: str = "", part: str = "spec") -> ObservedChange:
        return ObservedChange(subject, self.obj(**{part: {"x": 1}}), self.obj(**{part: {"x": 2}}))

    def note(self, *changes: ObservedChange, **rest: Any) -> RepeatWarning | None:
        return self.repeats.note(KEY, Round(changes, **rest))

    def heard(self) -> None:
        """Somebody else changes a child."""
        delta = Delta(DeltaKind.UPDATED, ObjectKey("ns", "child"), None, self.obj())
        self.repeats.heard(delta, (KEY,))


def test_a_row_of_rounds_that_change_the_same_field_is_told_once_a_minute() -> None:
    rounds = Rounds()
    for _ in range(2):
        told = [rounds.note(rounds.change()) for _ in range(3 * OFTEN)]
        (found,) = filter(None, told)
        assert told.index(found) == OFTEN - 1
        assert (found.times, found.changed) == (OFTEN, ("/spec/x: 1 -> 2",))
        rounds.seconds += WITHIN + 1


def test_the_time_of_the_row_is_told() -> None:
    rounds = Rounds()
    for _ in range(OFTEN - 1):
        assert rounds.note(rounds.change()) is None
        rounds.seconds += 0.5
    found = rounds.note(rounds.change())
    assert found is not None
    assert found.seconds == 3.5
    assert found.text("Thing", KEY).startswith(
        "the operator reconciles Thing ns/a again and again: 8 rounds in 3.5 s; each changes "
        "/spec/x: 1 -> 2; write a field of the own object only if"
    )


def test_a_round_without_a_change_ends_the_row_and_slow_rounds_make_none() -> None:
    rounds = Rounds()
    for _ in range(3):
        for _ in range(OFTEN - 1):
            assert rounds.note(rounds.change()) is None
        assert rounds.note(requeue_after=SOON) is None
    for _ in range(3 * OFTEN):
        rounds.seconds += 2 * WITHIN / OFTEN
        assert rounds.note(rounds.change()) is None


def test_rounds_that_each_create_a_child_count_only_when_they_never_end() -> None:
    rounds = Rounds()
    told = [
        rounds.note(
            ObservedChange(f"ConfigMap ns/{n}", None, rounds.obj()), rounds.change("", "status")
        )
        for n in range(MANY)
    ]
    assert not any(told[:-1])
    assert told[-1] is not None


def test_rounds_that_change_different_fields_do_not_count() -> None:
    rounds = Rounds()
    for n in range(3 * OFTEN):
        assert (
            rounds.note(ObservedChange("", rounds.obj(spec={}), rounds.obj(spec={str(n): n})))
            is None
        )


def test_status_that_follows_changes_by_others_does_not_count() -> None:
    rounds = Rounds()
    for _ in range(2 * MANY):
        assert rounds.note(rounds.change("", "status")) is None
        rounds.heard()


def test_what_the_operator_wrote_itself_is_no_change_by_others() -> None:
    rounds, told = Rounds(), []
    for _ in range(OFTEN):
        change = rounds.change("", "status")
        assert change.new is not None
        told.append(rounds.note(change))
        rounds.repeats.heard(Delta(DeltaKind.UPDATED, KEY, None, change.new), (KEY,))
    assert told[-1] is not None


@pytest.mark.parametrize(
    ("done", "cause"),
    [
        (lambda r: Round([r.change("", "status"), r.change()], conflict="late"), Cause.OWN),
        (lambda r: Round([r.change("", "status"), r.change("ConfigMap ns/b")]), Cause.CHILD),
        (lambda r: Round([ObservedChange("ConfigMap ns/b", None, r.obj())]), Cause.CHILDREN),
        (lambda r: Round([r.change("", "status")]), Cause.STATUS),
        (lambda r: Round([], conflict="late"), Cause.CONFLICT),
        (lambda r: Round([], requeue_after=SOON / 2), Cause.REQUEUE),
    ],
)
def test_the_advice_fits_the_cause(done: Any, cause: Cause) -> None:
    rounds = Rounds()
    told = [rounds.repeats.note(KEY, done(rounds)) for _ in range(OFTEN)]
    assert told[-1] is not None
    assert told[-1].cause is cause


def test_at_most_five_short_fields_are_told_and_no_secret() -> None:
    rounds = Rounds()
    new = {str(n): "x" * 100 for n in range(8)}
    for hidden in (False, True):
        rounds.repeats = Repeats(lambda: 0.0)
        for _ in range(OFTEN):
            change = ObservedChange(
                "Secret ns/b", rounds.obj(data={}), rounds.obj(data=new), hidden=hidden
            )
            found = rounds.note(change)
        assert found is not None
        assert len(found.changed) == 6
        assert found.changed[5] == "3 more"
        assert len(found.changed[0]) < 100
        assert ("xxx" in str(found.changed)) is not hidden


def ready(status: str, at: str) -> Obj:
    return {"type": "Ready", "status": status, "lastTransitionTime": at, "message": "m" * 50}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            {"conditions": [ready("True", "1")]},
            {"conditions": [ready("False", "2")]},
            '/status/conditions: [Ready].status: "True" -> "False"',
        ),
        (
            {"conditions": [ready("True", "1")]},
            {"conditions": [ready("True", "2")]},
            '/status/conditions: [Ready].lastTransitionTime: "1" -> "2"',
        ),
        (
            {"conditions": [{"type": "Fine"}, ready("True", "1")]},
            {"conditions": [ready("True", "1"), {"type": "Fine", "status": "True"}]},
            '/status/conditions: [Fine].status: nothing -> "True"',
        ),
        (
            {"seen": [{"x": [1, 2]}, {"x": [3]}]},
            {"seen": [{"x": [1, 2]}, {"x": [4]}]},
            "/status/seen: [1].x[0]: 3 -> 4",
        ),
        (
            {"seen": [{"name": "a"}, {"name": "b"}]},
            {"seen": [{"name": "b"}, {"name": "a"}]},
            '/status/seen: ["a", "b"] -> ["b", "a"]',
        ),
        (
            {"note": "n" * 60 + "1"},
            {"note": "n" * 60 + "2"},
            '/status/note: ...nnnnnnnnnn1" -> ...nnnnnnnnnn2"',
        ),
    ],
)
def test_the_difference_in_a_list_or_a_long_text_is_told(old: Obj, new: Obj, said: str) -> None:
    rounds = Rounds()
    for _ in range(OFTEN):
        change = ObservedChange("", rounds.obj(status=old), rounds.obj(status=new))
        found = rounds.note(change)
    assert found is not None
    assert found.changed == (said,)


# ---- on a server --------------------------------------------------------------------------------


@frozen
class Spec(Struct):
    """What is asked for."""

    size: int = 0


@frozen
class Status(ConditionedStatus):
    """What was seen."""

    note: str = ""


@crd("example.com", "v1", plural="loops")
@frozen
class Loop(KubeObject):
    """A thing."""

    spec: Spec = Spec()
    status: Status = Status()


async def grows(found: Loop, context: Context) -> None:
    size = {"spec": {"size": found.spec.size + 1}}
    await context.client.patch(Loop.resource, found.key, size, PatchType.MERGE)


async def learns(found: Loop, context: Context) -> None:
    size = {"spec": {"size": found.spec.size + 1}}
    context.obj = await context.client.patch(Loop.resource, found.key, size, PatchType.MERGE)
    context.learn(context.obj)


COUNT: list[int] = []


async def differs(found: Loop, context: Context) -> None:
    COUNT.append(0)
    await context.apply(MAPS.new("child", data={"calls": str(len(COUNT))}))


async def hides(found: Loop, context: Context) -> None:
    COUNT.append(0)
    await context.apply(SECRETS.new("child", stringData={"calls": f"hidden{len(COUNT)}"}))


async def reports(found: Loop, context: Context) -> None:
    COUNT.append(0)
    context.report(Status(note=str(len(COUNT))))


OTHERS: list[Client] = []


async def conflicts(found: Loop, context: Context) -> None:
    size = {"spec": {"size": found.spec.size + 1}}
    await OTHERS[-1].patch(Loop.resource, found.key, size, PatchType.MERGE)
    await context.client.replace(Loop.resource, {**context.obj, "spec": {"size": 0}})


async def generates(found: Loop, context: Context) -> None:
    api = CustomObjectsApi(context.client.api_client(context.learn))
    place = ("example.com", "v1", "default", "loops", found.name)
    size = {"spec": {"size": found.spec.size + 1}}
    merge = "application/merge-patch+json"
    await api.patch_namespaced_custom_object(*place, size, _content_type=merge)


async def hurries(found: Loop, context: Context) -> Result:
    return Result(requeue_after=0.001)


@pytest.mark.parametrize(
    ("function", "changed", "cause"),
    [
        (grows, "/spec/size: ", Cause.OWN),
        (learns, "/spec/size: ", Cause.OWN),
        (generates, "/spec/size: ", Cause.OWN),
        (differs, "ConfigMap default/child /data/calls: ", Cause.CHILD),
        (hides, "Secret default/child /data/calls: (not shown)", Cause.CHILD),
        (reports, "/status/note: ", Cause.STATUS),
        (conflicts, "; /spec/size: ", Cause.CONFLICT),
        (hurries, "nothing: requeue_after is 0.001 s", Cause.REQUEUE),
    ],
)
async def test_what_loops_is_named_within_ten_rounds_with_what_changes(
    kube_client: Client, function: Any, changed: str, cause: Cause
) -> None:
    app, calls = Operator("loops"), 0
    OTHERS.append(kube_client)

    async def counted(found: Loop, context: Context) -> Any:
        nonlocal calls
        calls += not told()
        return await function(found, context)

    app.reconciles(Loop, owns=[MAPS, SECRETS])(counted)

    def told() -> list[Any]:
        return [each for each in lines if "again and again" in each["event"]]

    with capture_logs() as lines:
        async with running(app, kube_client):
            await kube_client.of(Loop).create(Loop.new("one", "default"))
            await eventually(told)
    (line,) = told()
    assert line["times"] <= calls <= 10
    assert any(changed in each for each in line["changed"]), line
    assert line["fix"] == cause.value


async def test_settled_says_that_the_operator_repeats_itself(kube_client: Client) -> None:
    app = Operator("loops")
    app.reconciles(Loop)(grows)
    async with running(app, kube_client):
        one = await kube_client.of(Loop).create(Loop.new("one", "default"))
        with pytest.raises(AssertionError, match="reconciles Loop default/one again and again: "):
            await settled(kube_client, one, within=1)


async def test_an_operator_that_makes_its_children_one_by_one_is_left_alone(
    kube_client: Client,
) -> None:
    app = Operator("loops")

    @app.reconciles(Loop, owns=[MAPS])
    async def reconcile(found: Loop, context: Context) -> None:
        count = len(context.children(MAPS))
        if count < 20:
            await context.apply(MAPS.new(f"child-{count}", data={"a": "b"}))
        context.report(Status(note=f"{count} of 20"))

    with capture_logs() as lines:
        async with running(app, kube_client):
            await kube_client.of(Loop).create(Loop.new("one", "default"))

            async def done() -> bool:
                one = await kube_client.of(Loop).get(ObjectKey("default", "one"))
                return one.status.note == "20 of 20"

            await eventually(done)
    assert not [each for each in lines if "again and again" in each["event"]]
