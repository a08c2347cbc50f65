"""`metrics.customLabels`: what is accepted, what is refused, and what a Workload needs for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import parse_configuration
from kueuelib.app.part_settings import job_settings
from kueuelib.controllers.series_labels import CustomLabel
from kueuelib.errors import ConfigError
from kueuelib.jobs.contract.settings import TakenOver

HEAD = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
TEAM = {"name": "team", "sourceLabelKey": "example.com/team"}
UPSTREAM = yaml.load(
    (Path(__file__).parents[2] / "upstream" / "custom_labels.yaml").read_text(encoding="utf-8"),
    yaml.CSafeLoader,
)


def parse(**content: Any) -> Configuration:
    return parse_configuration({**HEAD, **content}, "config.yaml")


def test_labels_of_queue_objects_become_labels_of_metrics() -> None:
    cost = {"name": "cost", "sourceAnnotationKey": "cost", "sourceKind": "LocalQueue"}
    found = parse(metrics={"customLabels": [TEAM, {**cost, "trackedValues": ["a"]}]})
    assert [each.label for each in found.metrics.custom_labels] == [
        CustomLabel("custom_team", "ClusterQueue", "example.com/team"),
        CustomLabel("custom_cost", "LocalQueue", "cost", annotation=True, tracked=("a",)),
    ]
    assert parse(metrics={"customLabels": [{"name": "team"}]}).metrics.custom_labels[0].key == (
        "team"
    )


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([{"name": "a-b"}], "customLabels[0].name: 'a-b'"),
        ([{}], "customLabels[0].name: ''"),
        ([TEAM, TEAM], "customLabels[1].name: team is used twice"),
        ([{**TEAM, "sourceAnnotationKey": "b"}], "customLabels[0] has sourceLabelKey and"),
        ([{"name": "a", "sourceLabelKey": "/"}], "[0].sourceLabelKey: '/' is not a label key"),
        ([{"name": "a", "sourceKind": "Pod"}], "sourceKind is 'Pod'; write one of"),
        ([{"name": f"a{i}"} for i in range(21)], "customLabels has 21"),
        ([{**TEAM, "trackedValues": ["a", "a"]}], "trackedValues repeats a value"),
    ],
)
def test_labels_of_metrics_that_kueue_refuses_are_refused(labels: list[Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(metrics={"customLabels": labels})
    assert problem in str(caught.value)


@pytest.mark.parametrize("labels", UPSTREAM["valid"])
def test_labels_of_metrics_that_kueue_accepts_are_accepted(labels: list[Any]) -> None:
    assert len(parse(metrics={"customLabels": labels}).metrics.custom_labels) == len(labels)


@pytest.mark.parametrize("case", UPSTREAM["refused"], ids=str)
def test_refused_labels_of_metrics_are_refused_at_the_same_place(case: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(metrics={"customLabels": case["labels"]})
    assert f"metrics.customLabels{case['at']}" in str(caught.value)


@pytest.mark.parametrize(("kind", "most"), UPSTREAM["most"]["of"].items())
def test_as_many_labels_and_values_as_kueue_allows(kind: str, most: int) -> None:
    tracked = UPSTREAM["most"]["tracked"][kind]
    label = {"sourceKind": kind, "trackedValues": [f"v{i}" for i in range(tracked)]}
    found = [{**label, "name": f"a{i}"} for i in range(most)]
    assert len(parse(metrics={"customLabels": found}).metrics.custom_labels) == most
    one_more = {**label, "name": "b"}
    with pytest.raises(ConfigError, match=f"has {most + 1} of a {kind}; name at most {most}"):
        parse(metrics={"customLabels": [*found, one_more]})
    one_more["trackedValues"] = [*label["trackedValues"], "w"]
    with pytest.raises(ConfigError, match=rf"\[0\]\.trackedValues has {tracked + 1}"):
        parse(metrics={"customLabels": [one_more]})


def test_a_workload_takes_over_what_its_metrics_are_read_from() -> None:
    facts = UPSTREAM["taken_over"]
    found = parse(
        metrics={"customLabels": [*facts["labels"], {"name": "c", "sourceLabelKey": "queue"}]},
        integrations={"labelKeysToCopy": ["more"]},
    )
    assert job_settings(found).taken_over == TakenOver(("more", "job-label"), ("job-annotation",))
