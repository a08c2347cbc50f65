"""Feature gates: what is accepted, what is honoured, and how the rest is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import parse_configuration
from kueuelib.app.feature_gates import CONFIGURED, EITHER, FREE, KNOWN, NO_SWITCH, OFF, ON
from kueuelib.app.part_settings import job_settings
from kueuelib.app.wiring import engine_settings
from kueuelib.errors import ConfigError

HEAD = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}


def parse(gate: str, value: bool, **content: Any) -> Configuration:
    return parse_configuration({**HEAD, "featureGates": {gate: value}, **content}, "c.yaml")


def refusal(gate: str, value: bool, **content: Any) -> str:
    with pytest.raises(ConfigError, match=rf"c\.yaml: featureGates\.{gate}: ") as refused:
        parse(gate, value, **content)
    return str(refused.value)


def test_no_gate_is_in_two_lists() -> None:
    lists = (FREE, ON, OFF, EITHER, CONFIGURED, NO_SWITCH)
    assert len(KNOWN) == sum(len(each) for each in lists)


def test_values_that_say_what_happens_anyway_are_accepted_and_others_are_refused() -> None:
    for gate in (*FREE, *EITHER):
        assert parse(gate, True)
        assert parse(gate, False)
    for gate in ON:
        assert parse(gate, True)
        assert "cannot be turned off" in refusal(gate, False)
    for gate, why in OFF.items():
        assert parse(gate, False)
        assert why in refusal(gate, True)
    for gate in NO_SWITCH:
        assert "no such switch" in refusal(gate, True)
        assert "no such switch" in refusal(gate, False)


@pytest.mark.parametrize(
    ("gate", "setting"),
    [
        ("PartialAdmission", "partial_admission"),
        ("FlavorFungibility", "flavor_fungibility"),
        ("PrioritySortingWithinCohort", "priority_sorting"),
    ],
)
def test_gates_of_the_engine_are_settings(gate: str, setting: str) -> None:
    for value in (True, False):
        assert getattr(engine_settings(parse(gate, value)), setting) is value


def test_the_gate_of_devices_lets_them_be_used_without_quota() -> None:
    for configured, admits in (
        (Configuration(), False),
        (parse("KueueDRARejectWorkloadsWhenDRADisabled", True), False),
        (parse("KueueDRARejectWorkloadsWhenDRADisabled", False), True),
    ):
        assert engine_settings(configured).resources.admits_claims is admits
        assert job_settings(configured).admits_claims is admits


def test_the_gate_of_the_default_class_is_a_setting_for_jobs() -> None:
    assert job_settings(Configuration()).defaults_priority_class
    for value in (True, False):
        configured = parse("WorkloadPriorityClassDefaulting", value)
        assert job_settings(configured).defaults_priority_class is value


def test_gates_decide_what_pods_say_about_their_origin() -> None:
    origin = job_settings(Configuration()).origin
    assert (origin.queues, origin.workload) == (True, True)
    for value in (True, False):
        assert job_settings(parse("AssignQueueLabelsForPods", value)).origin.queues is value
    assert not job_settings(parse("TopologyAwareScheduling", False)).origin.workload


def test_the_gate_of_groups_and_the_key_decide_when_quota_is_released() -> None:
    def releases(content: dict[str, Any]) -> tuple[str, str]:
        found = job_settings(parse_configuration({**HEAD, **content}, "c.yaml"))
        return found.release_of(group=False).value, found.release_of(group=True).value

    early, late, gate = "OnTermination", "OnTerminal", "FastQuotaReleaseInPodIntegration"
    assert releases({}) == (early, late)
    assert releases({"featureGates": {gate: False}}) == (early, late)
    assert releases({"featureGates": {gate: True}}) == (early, early)
    for strategy in (early, late):
        for value in (True, False):
            given = {"quotaReleaseStrategy": strategy, "featureGates": {gate: value}}
            assert releases(given) == (strategy, strategy)
    with pytest.raises(ConfigError, match="quotaReleaseStrategy is 'Never'.*OnTermination or"):
        releases({"quotaReleaseStrategy": "Never"})


def test_a_gate_that_a_block_decides_must_agree_with_it() -> None:
    sharing = {"usageHalfLifeTime": "1h"}
    assert parse("AdmissionFairSharing", True)
    assert parse("AdmissionFairSharing", True, admissionFairSharing=sharing)
    assert parse("AdmissionFairSharing", False)
    said = refusal("AdmissionFairSharing", False, admissionFairSharing=sharing)
    assert "false, but admissionFairSharing says that it is turned on" in said
    assert parse("VisibilityOnDemand", False)
    assert parse("VisibilityOnDemand", True, visibilityServer={})
    assert "change visibilityServer" in refusal("VisibilityOnDemand", True)
    assert parse("LocalQueueMetrics", True)
    off = {"localQueueMetrics": {"enable": False}}
    assert parse("LocalQueueMetrics", False, metrics=off)
    assert "metrics.localQueueMetrics.enable" in refusal("LocalQueueMetrics", False)
    loose = {"quotaCheckStrategy": "IgnoreUndeclared"}
    assert parse("QuotaCheckStrategy", True, resources=loose)
    assert refusal("QuotaCheckStrategy", False, resources=loose)


def test_a_gate_with_a_typo_is_refused_with_the_name_that_was_meant() -> None:
    assert "did you mean PartialAdmission?" in refusal("PartialAdmision", True)
    assert "unknown feature gate" in refusal("Xyz", False)


@pytest.mark.parametrize("address", ["", "0"])
def test_profiles_that_are_off_are_accepted(address: str) -> None:
    assert parse_configuration({**HEAD, "pprofBindAddress": address}, "c")
