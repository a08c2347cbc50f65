"""An operator does not start without the kinds that it names, and the error says which."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from kueuelib.api.definitions import crd_of
from kueuelib.api.kinds import CRDS
from kueuelib.api.meta import Obj, Resource
from kueuelib.errors import ConfigError
from kueuelib.runtime import Client, Context, KubeObject, Operator, Struct, crd, frozen, kinds
from kueuelib.runtime.operator.program import check_served
from kueuelib.runtime.queries import unserved
from kueuelib.testing import running

TYPO = Resource("", "v1", "configmap", "ConfigMap", namespaced=True)
OTHER_TYPO = Resource("apps", "v1", "deploymnts", "Deploymnt", namespaced=True)
WRONG_GROUP = Resource("app", "v1", "deployments", "Deployment", namespaced=True)
ABSENT = Resource("monitoring.example.org", "v1", "monitors", "Monitor", namespaced=True)
NOT_APPS = "install what serves it; or did you mean apps/v1?"
INSTALL = "run `kueuelib manifests FILE | kubectl apply -f -`"


@frozen
class Spec(Struct):
    """What is asked for."""

    size: str = "a"


@crd("example.com", "v1", plural="cups")
@frozen
class Cup(KubeObject):
    """A cup."""

    spec: Spec = Spec()


def operator_of(kind: Any = kinds.SECRETS, **touched: Any) -> Operator:
    app = Operator("cups")

    @app.reconciles(kind, **touched)
    async def reconcile(found: Obj, context: Context) -> None:
        """Do nothing."""

    return app


@pytest.mark.parametrize(
    ("touched", "said"),
    [
        ({"kind": TYPO}, "configmap: is not served in v1; did you mean configmaps?"),
        ({"owns": [TYPO]}, "configmap: is not served in v1; did you mean configmaps?"),
        (
            {"watches": {TYPO: lambda delta: [delta.key]}},
            "configmap: is not served in v1; did you mean configmaps?",
        ),
        ({"writes": [TYPO]}, "configmap: is not served in v1; did you mean configmaps?"),
        (
            {"writes": [OTHER_TYPO]},
            "deploymnts: is not served in apps/v1; did you mean deployments?",
        ),
        (
            {"owns": [WRONG_GROUP]},
            "deployments: is not served in app/v1; " + NOT_APPS,
        ),
        (
            {"owns": [ABSENT]},
            "monitors: is not served in monitoring.example.org/v1; install what serves it",
        ),
    ],
)
async def test_a_test_fails_at_once(
    kube_client: Client, touched: dict[str, Any], said: str
) -> None:
    with anyio.fail_after(10), pytest.raises(ConfigError) as refused:
        async with running(operator_of(**touched), kube_client):
            pytest.fail("it runs")
    assert str(refused.value) == said


async def test_what_is_only_written_may_be_absent(kube_client: Client) -> None:
    with capture_logs() as lines:
        async with running(operator_of(Cup, writes=[ABSENT]), kube_client):
            pass
    (line,) = [each for each in lines if each["event"] == "cannot be written"]
    assert line["why"].startswith("monitors: is not served in monitoring.example.org/v1;")


async def test_a_missing_definition_names_the_command_that_installs_it(kube_client: Client) -> None:
    with capture_logs() as lines, pytest.raises(ConfigError) as refused:
        await check_served(operator_of(Cup), kube_client, patience=0.6)
    said = f"cups: is not served in example.com/v1; {INSTALL}"
    assert str(refused.value) == said
    assert [each["why"] for each in lines if each["event"] == "waiting for a kind"] == [said]


async def test_a_definition_that_was_just_applied_is_waited_for(kube_client: Client) -> None:
    async with anyio.create_task_group() as group:
        with capture_logs() as lines:
            group.start_soon(check_served, operator_of(Cup), kube_client, 20.0)
            with anyio.fail_after(10):
                while not lines:
                    await anyio.sleep(0.01)
            await kube_client.create(CRDS, crd_of(Cup))
    assert len(lines) == 1


async def test_a_kind_with_another_plural_is_not_waited_for(kube_client: Client) -> None:
    with anyio.fail_after(10), pytest.raises(ConfigError, match="did you mean configmaps"):
        await check_served(operator_of(owns=[TYPO]), kube_client, patience=60.0)


def test_the_plural_of_the_same_kind_is_nearer_than_a_similar_word() -> None:
    wanted = Resource("example.com", "v1", "indexs", "Index", namespaced=True)
    served = {"indexers": "Indexer", "indices": "Index"}
    found = unserved(wanted, served, (), own=False)
    assert found is not None
    assert found.misnamed
    assert found.error.fix == "did you mean indices?"


def test_a_group_with_little_in_common_is_not_offered() -> None:
    wrong = unserved(ABSENT, {}, ("v1", "example.com/v1"), own=False)
    assert wrong is not None
    assert wrong.error.fix == "install what serves it"
