"""What `eventually` waits for, and what it does not."""

from __future__ import annotations

from collections import Counter

import pytest

from kueuelib.errors import ApiError, ConfigError, Invalid, NotFound
from kueuelib.runtime import (
    Client,
    ConditionedStatus,
    Context,
    KubeObject,
    Operator,
    Struct,
    crd,
    frozen,
)
from kueuelib.testing import eventually, running, settled


async def test_a_refusal_that_no_repetition_changes_is_raised_at_once() -> None:
    asked = []

    async def refused() -> bool:
        asked.append(1)
        raise Invalid("the object is invalid")

    with pytest.raises(Invalid):
        await eventually(refused, within=5)
    assert len(asked) == 1


async def test_what_may_still_come_is_waited_for() -> None:
    answers: list[ApiError] = [NotFound("no"), NotFound("no")]

    async def look() -> bool:
        if answers:
            raise answers.pop()
        return True

    assert await eventually(look, within=5)


# ---- what a reconciler failed at --------------------------------------------------------------

app = Operator("thing-operator")


@frozen
class Spec(Struct):
    """How often to fail.

    Attributes:
        failures: that many times.
        says_ready: before it fails.
    """

    failures: int = 0
    says_ready: bool = False


@crd("example.com", "v1", plural="things")
@frozen
class Thing(KubeObject):
    """Fails."""

    spec: Spec = Spec()
    status: ConditionedStatus = ConditionedStatus()


TRIED: Counter[str] = Counter()


@app.reconciles(Thing)
async def reconcile(thing: Thing, context: Context) -> None:
    """Fail as often as the object says."""
    secret_value = thing.spec.failures
    TRIED[thing.name] += 1
    if thing.spec.says_ready:
        context.condition("Ready", True, "Begun")
    if TRIED[thing.name] <= secret_value:
        raise RuntimeError(f"attempt {TRIED[thing.name]}")
    context.condition("Ready", True, "Done")


@pytest.fixture(autouse=True)
def untried() -> None:
    TRIED.clear()


async def test_a_wait_that_fails_says_what_the_reconciler_failed_at_last(
    kube_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(app, kube_client):
        new = Thing.new("bad", "default", spec=Spec(failures=1_000))
        bad = await kube_client.of(Thing).create(new)
        with pytest.raises(AssertionError) as raised:
            await settled(kube_client, bad, within=0.3)
        with pytest.raises(AssertionError, match="default/bad with RuntimeError"):
            await eventually(lambda: False, within=0.1)
    assert "at the end it was observedGeneration 0 of default/bad, not yet 1: no call" in str(
        raised.value
    )
    failure = "controller thing-operator-things failed at default/bad with RuntimeError: attempt"
    assert failure in str(raised.value)
    with pytest.raises(AssertionError) as raised:
        await eventually(lambda: False, within=0)
    assert "controller" not in str(raised.value)  # it does not run any more
    assert "RuntimeError: attempt 1\n" in caplog.text
    assert "key=default/bad" in caplog.text
    assert "secret_value = " not in caplog.text.replace("secret_value = thing.spec.failures", "")


async def test_a_reconciler_that_fails_after_it_set_a_condition_has_not_settled(
    kube_client: Client,
) -> None:
    async with running(app, kube_client):
        new = Thing.new("late", "default", spec=Spec(failures=1_000, says_ready=True))
        late = await kube_client.of(Thing).create(new)
        with pytest.raises(AssertionError, match="observedGeneration 0 .*default/late with Runti"):
            await settled(kube_client, late, within=0.5)
        late = await kube_client.of(Thing).get(late.key)
        ready = late.status.conditions[0]
        assert (ready.type, ready.reason, ready.observed_generation) == ("Ready", "Begun", 1)
        late = await kube_client.of(Thing).replace(late.evolve(spec=Spec()))
        late = await settled(kube_client, late)
        failing = late.evolve(spec=Spec(failures=1_000, says_ready=True))
        failing = await kube_client.of(Thing).replace(failing)
        with pytest.raises(AssertionError, match="observedGeneration 2 of default/late, not yet 3"):
            await settled(kube_client, failing, within=0.5)


async def test_a_failure_that_was_overcome_is_not_blamed(kube_client: Client) -> None:
    async with running(app, kube_client):
        new = Thing.new("better", "default", spec=Spec(failures=2))
        await settled(kube_client, await kube_client.of(Thing).create(new))
        assert TRIED["better"] >= 3
        with pytest.raises(AssertionError) as raised:
            await eventually(lambda: False, within=0)
    assert str(raised.value) == "not within 0 s; at the end it was False"


async def test_a_status_without_observed_generation_cannot_be_waited_for(
    kube_client: Client,
) -> None:
    @crd("example.com", "v1", plural="blanks")
    @frozen
    class Blank(KubeObject):
        """Has a status that says nothing."""

        status: Spec = Spec()

    with pytest.raises(ConfigError, match=r"settled\(Blank\).*extend ConditionedStatus"):
        await settled(kube_client, Blank.new("one", "default"))

    @crd("example.com", "v1", plural="bares")
    @frozen
    class Bare(KubeObject):
        """Without a status."""

    with pytest.raises(ConfigError, match=r"settled\(Bare\): the class has no field status; add"):
        await settled(kube_client, Bare.new("one", "default"))
