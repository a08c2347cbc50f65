"""Job kinds for a manager of one's own: what may be passed, and what it is called."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from kueuelib.errors import ConfigError
from kueuelib.jobs import BatchJob, GenericJob, Integration, PodJob, job_webhooks
from kueuelib.jobs.assembly import registry_with
from kueuelib.jobs.catalog.batch import BATCH_JOB
from kueuelib.runtime import Manager, Resource


class Nightly(BatchJob):
    """A kind with the fields of a Job."""

    resource = Resource("example.com", "v1", "nightlies", "Nightly", namespaced=True)


class Shadow(BatchJob):
    """Another integration of batch/v1 Job."""


class Half(GenericJob):
    """Lacks its methods."""

    resource = Resource("example.com", "v1", "halves", "Half", namespaced=True)


def test_kinds_are_classes_integrations_and_names_in_any_order() -> None:
    registry, names = registry_with([Nightly, "pod", BatchJob])
    assert names == ("example.com/nightly", "pod", "batch/job")
    enabled = {each.name: each for each in registry.enabled(names)}
    assert enabled["batch/job"] is BATCH_JOB, "with its rules for partial admission"
    assert enabled["example.com/nightly"].job_type is Nightly

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
        ([Shadow], 'integration "batch/job": is registered already'),
        ([Half], "kinds: Half is not a job kind; pass a GenericJob with all its methods"),
        ([3], "kinds: 3 is not a job kind"),
        ([PodJob], 'kinds: only the bundled kind can queue Pods; pass "pod"'),
    ],
)
def test_what_cannot_be_queued_is_refused_with_the_fix(kinds: list, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        registry_with(kinds)


def test_webhooks_beside_another_manager_have_the_names_of_the_manifests() -> None:
    webhooks = job_webhooks(Manager(), Mock(), [Nightly, "batch/job"], namespace="team")
    assert webhooks.mutating == webhooks.validating == "kueuelib-nightlies-example-com"
    assert webhooks.user == "system:serviceaccount:team:kueuelib-nightlies-example-com"


def test_a_malformed_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="webhook address: webhooks are needed; write HOST:PORT"):
        job_webhooks(Manager(), Mock(), [Nightly], "0")
