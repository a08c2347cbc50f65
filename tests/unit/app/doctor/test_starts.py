"""Starts that are overdue, and the dry runs that say what keeps them."""

from __future__ import annotations

import copy
from typing import Any

import attrs
import pytest

from kueuelib.api.patch import merge_patch
from kueuelib.app.doctor.snapshot import TriedStart
from kueuelib.app.doctor.starts import try_starts
from kueuelib.errors import ApiError, Forbidden, Invalid, NotFound

from .test_findings import refuse_the_start

POLICY = ("mutatingadmissionpolicy", "normalize-jobs")
STILL = "spec.suspend is still true in the answer: a mutating webhook or policy changes it back"


@attrs.define
class Policed:
    """A client of a cluster in which a policy changes every Job, or refuses it."""

    makes: dict[str, Any]
    refusal: ApiError | None = None
    served: str = "v1"
    tried: list[Any] = attrs.field(factory=list)

    async def request(self, method: str, path: str, *, params: Any, body: Any, **_: Any) -> Any:
        self.tried.append((method, path, *params))
        if self.refusal is not None:
            raise self.refusal
        return merge_patch(merge_patch({"spec": {"suspend": True}}, body), self.makes)

    async def list(self, resource: Any) -> Any:
        if resource.version != self.served:
            raise NotFound("not served")
        rules = [{"apiGroups": ["batch"], "operations": ["*"], "resources": ["jobs"]}]
        other = [{"apiGroups": ["apps"], "operations": ["*"], "resources": ["*"]}]
        names = {"normalize-jobs": rules, "unbound": rules, "apps": other}
        if resource.kind.endswith("Binding"):
            names = {"normalize-jobs": [], "apps": []}
        items = [
            {
                "metadata": {"name": name},
                "spec": {"policyName": name, "matchConstraints": {"resourceRules": rules}},
            }
            for name, rules in names.items()
        ]
        return type("Page", (), {"items": items})


def hold_two(patient: Any) -> None:
    refuse_the_start(patient)
    job, runs = copy.deepcopy(patient.get("Job", "held")), patient.get("Workload", "runs")
    runs = copy.deepcopy(runs)
    for one, name in ((job, "held-2"), (runs, "runs-2")):
        one["metadata"] |= {"name": name, "uid": f"uid-{name}"}
        patient.objects.append(one)
    runs["metadata"]["ownerReferences"][0] |= {"name": "held-2", "uid": "uid-held-2"}


def findings(patient: Any) -> list[Any]:
    return [one for name, one in patient.found() if name == "not-started"]


@pytest.mark.parametrize("served", ["v1", "v1beta1", "none"])
async def test_a_start_that_is_changed_back_is_one_finding_that_names_the_policy(
    patient: Any, served: str
) -> None:
    hold_two(patient)
    client = Policed({"spec": {"suspend": True}}, served=served)
    patient.starts = await try_starts(client, patient.snapshot())  # type: ignore[arg-type]
    changers = () if served == "none" else (POLICY,)
    back = {"is_changed_back": True, "changers": changers}
    uids = ["uid-held", "uid-held-2"]
    assert [*patient.starts] == [TriedStart("Job", uid, STILL, **back) for uid in uids]
    path = "/apis/batch/v1/namespaces/ns/jobs/held"
    assert client.tried[0] == ("PATCH", path, ("dryRun", "All"))
    (found,) = findings(patient)
    assert STILL in found.problem
    assert found.problem.endswith("so are 1 other Jobs, for example ns/held-2")
    if changers:
        assert found.fix.startswith("kubectl get mutatingadmissionpolicy normalize-jobs -o yaml")
    else:
        assert "--dry-run=server -o jsonpath='{.spec.suspend}'" in found.fix


async def test_a_dry_run_says_what_refuses_a_start_or_that_nothing_does(patient: Any) -> None:
    hold_two(patient)
    client = Policed({})
    patient.starts = await try_starts(client, patient.snapshot())  # type: ignore[arg-type]
    assert "a dry run of its start succeeds; so are" in findings(patient)[0].problem
    client.refusal = Invalid("denied the request: not now")
    patient.starts = await try_starts(client, patient.snapshot())  # type: ignore[arg-type]
    first, _ = findings(patient)
    assert first.problem.endswith("denied the request: not now (in a dry run)")
    client.refusal = Forbidden('User "me" cannot patch resource "jobs" in API group "batch"')
    assert await try_starts(client, patient.snapshot()) == ()  # type: ignore[arg-type]
