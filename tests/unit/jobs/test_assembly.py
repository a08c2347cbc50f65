"""Job kinds for a manager of one's own: what may be passed, and what it is called."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from kueuelib import checks, controllers, jobs
from kueuelib.errors import ConfigError, InvalidJob
from kueuelib.jobs import (
    BatchJob,
    GenericJob,
    Integration,
    JobSettings,
    PodJob,
    PodSet,
    PodSettings,
    QuotaReleaseStrategy,
    job_webhooks,
)
from kueuelib.jobs.assembly import registry_with
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.runtime import Cache, EventRecorder, Manager, Resource
from kueuelib.scheduler import Engine


class Nightly(BatchJob):
    """A kind with the fields of a Job."""

    resource = Resource("example.com", "v1", "nightlies", "Nightly", namespaced=True)


class Shadow(BatchJob):
    """Another integration of batch/v1 Job."""


class Likewise(PodJob):
    """Another kind with the fields of a Pod."""

    resource = Resource("example.com", "v1", "likewises", "Likewise", namespaced=True)


class Half(GenericJob):
    """Lacks its methods."""

    resource = Resource("example.com", "v1", "halves", "Half", namespaced=True)


class Untyped(Nightly, GenericJob[Half]):
    """Names a class without `@crd`."""

    resource = None


def parts(*kinds: Any) -> tuple[Any, ...]:
    client = Mock()
    return Manager(), Cache(client), client, EventRecorder(client, "me"), *kinds


@pytest.mark.parametrize(
    ("again", "said"),
    [
        (lambda to: jobs.setup(*to, [Nightly]), "jobs.setup: is in this manager already; call it"),
        (
            lambda to: controllers.setup(*to, Engine()),
            "controllers.setup: is in this manager already; call it once",
        ),
        (
            lambda to: checks.setup(*to, [checks.check("example.com/a")(lambda workload, _: None)]),
            "check 'example.com/a': is in this manager already",
        ),
    ],
)
def test_what_is_in_a_manager_is_not_added_again(
    again: Callable[[Sequence[Any]], None], said: str
) -> None:
    to = parts()
    again(to)
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}"):
        again(to)
    again(parts())


@pytest.mark.parametrize(
    "use",
    [
        lambda version: jobs.setup(*parts(), [Nightly], version=version),
        lambda version: checks.setup(*parts(), [], version=version),
        controllers.ControllerSettings,
    ],
)
def test_a_version_of_the_queueing_api_that_does_not_exist_is_refused(
    use: Callable[[str], None],
) -> None:
    use("v1beta1")
    with pytest.raises(ConfigError, match="no version 'v1'; use v1beta1 or v1beta2"):
        use("v1")


def test_a_function_that_is_not_decorated_is_no_check() -> None:
    def plain(workload: Any, _: Any) -> None: ...

    given: Any = [plain]
    said = 'checks.setup: plain: is not a check; decorate it with @check("example.com/name")'
    with pytest.raises(ConfigError, match=re.escape(said)):
        checks.setup(*parts(), given)


@pytest.mark.parametrize(
    "template", [{}, {"spec": None}, {"spec": {}}, {"spec": {"containers": []}}]
)
def test_a_pod_set_has_containers(template: Any) -> None:
    with pytest.raises(
        InvalidJob, match="template.spec.containers: a pod has at least one container"
    ):
        PodSet("main", 5, template)


def test_a_release_strategy_may_be_named() -> None:
    assert JobSettings().quota_release is QuotaReleaseStrategy.ON_TERMINATION
    given: Any = "OnTerminal"
    assert JobSettings(quota_release=given).quota_release is QuotaReleaseStrategy.ON_TERMINAL
    assert PodSettings(group_release=given).group_release is QuotaReleaseStrategy.ON_TERMINAL
    for wrong in ("Terminal", 3, None):
        typo: Any = wrong
        with pytest.raises(ConfigError, match="is not a strategy; use OnTermination or OnTerminal"):
            JobSettings(quota_release=typo)


def test_kinds_are_classes_integrations_and_names_in_any_order() -> None:
    registry, names = registry_with([Nightly, "pod", BatchJob])
    assert names == ("example.com/nightly", "pod", "batch/job")
    enabled = {each.name: each for each in registry.enabled(names)}
    assert enabled["batch/job"] is BATCH_JOB, "with its rules for partial admission"
    assert enabled["example.com/nightly"].job_type is Nightly

    registry, names = registry_with([Shadow, "pod"])
    assert [each.job_type for each in registry.enabled(names)][-1] is Shadow, "the bundled one goes"

    made = Integration.of(Nightly, "mine")
    registry, names = registry_with([made])
    assert registry.enabled(names) == (made,)


def test_a_bundled_kind_brings_those_that_it_implies() -> None:
    registry, names = registry_with(["statefulset"])
    assert {each.name for each in registry.enabled(names)} > {"statefulset"}


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ([], "kinds: no job kind is given"),
        (["jobs"], "integrations.frameworks: unknown name: jobs"),
        ([Nightly, Nightly], 'integration "example.com/nightly": is registered already'),
        ([Shadow, "batch/job"], 'integration "batch/job": is registered already'),
        ([Half], "kinds: Half is not a job kind; pass a GenericJob with all its methods"),
        ([3], "kinds: 3 is not a job kind"),
        ([Untyped], "kinds: Untyped has no kind; derive from GenericJob[Training] with a class"),
        (["batch/job", "batch/job"], "kinds: batch/job exists twice; list each kind once"),
        ([BatchJob, "batch/job"], "kinds: batch/job exists twice; list each kind once"),
        ([PodJob], 'kinds: only the bundled kind can queue Pods; pass "pod"'),
        ([Likewise], 'kinds: only the bundled kind can queue Pods; pass "pod"'),
    ],
)
def test_what_cannot_be_queued_is_refused_with_the_fix(kinds: list, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        registry_with(kinds)


def test_webhooks_beside_another_manager_have_the_names_of_the_manifests() -> None:
    webhooks = job_webhooks(Manager(), Mock(), [Nightly, "batch/job"], namespace="team")
    assert webhooks.mutating == webhooks.validating == "kueuelib-nightlies-example-com"
    assert webhooks.user == "system:serviceaccount:team:kueuelib-nightlies-example-com"


def test_a_malformed_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="webhook address: webhooks are needed; write HOST:PORT"):
        job_webhooks(Manager(), Mock(), [Nightly], "0")
