"""Annotations of pod templates become requests of a topology, or are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kueuelib.api.names import (
    POD_SET_GROUP,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
    SLICE_CONSTRAINTS,
    SLICE_LEVEL,
    SLICE_SIZE,
    UNCONSTRAINED_TOPOLOGY,
)
from kueuelib.jobs.contract.topology import (
    Ranks,
    asking_annotations,
    errors_of_pod_sets,
    topology_errors,
    topology_request,
)

RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
LAYERS = [{"topology": RACK, "size": 4}, {"topology": HOST, "size": 2}]


def layers(*pairs: tuple[str, int]) -> str:
    return json.dumps([{"topology": level, "size": size} for level, size in pairs])


@pytest.mark.parametrize(
    ("annotations", "request_"),
    [
        ({}, None),
        ({REQUIRED_TOPOLOGY: RACK, PREFERRED_TOPOLOGY: HOST}, {"required": RACK}),
        ({PREFERRED_TOPOLOGY: RACK, UNCONSTRAINED_TOPOLOGY: "true"}, {"preferred": RACK}),
        ({UNCONSTRAINED_TOPOLOGY: "T"}, {"unconstrained": True}),
        ({UNCONSTRAINED_TOPOLOGY: "false"}, {"unconstrained": False}),
        ({UNCONSTRAINED_TOPOLOGY: "perhaps"}, {"unconstrained": False}),
        ({SLICE_LEVEL: RACK}, None),
        ({SLICE_SIZE: "2"}, None),
        (
            {SLICE_LEVEL: RACK, SLICE_SIZE: "2"},
            {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2},
        ),
        (
            {SLICE_LEVEL: RACK, SLICE_SIZE: "+" + "0" * 9999 + "2"},
            {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2},
        ),
        (
            {SLICE_LEVEL: RACK, SLICE_SIZE: "two"},
            {"podSetSliceRequiredTopology": RACK},
        ),
        (
            {SLICE_CONSTRAINTS: json.dumps(LAYERS), SLICE_LEVEL: RACK, SLICE_SIZE: "2"},
            {"podsetSliceRequiredTopologyConstraints": LAYERS},
        ),
        ({SLICE_CONSTRAINTS: "[]"}, {"podSetSliceRequiredTopology": ""}),
        ({SLICE_CONSTRAINTS: "{"}, {"podSetSliceRequiredTopology": ""}),
        ({POD_SET_GROUP: "g"}, None),
        ({POD_SET_GROUP: "g", UNCONSTRAINED_TOPOLOGY: "true"}, {"unconstrained": True}),
        ({POD_SET_GROUP: "g", REQUIRED_TOPOLOGY: RACK}, {"required": RACK, "podSetGroupName": "g"}),
    ],
)
def test_the_first_annotation_counts(annotations: dict[str, str], request_: Any) -> None:
    assert topology_request(annotations, None) == request_


def test_labels_with_ranks_are_named_in_any_case() -> None:
    assert topology_request({}, Ranks("index")) == {"podIndexLabel": "index"}
    assert topology_request({REQUIRED_TOPOLOGY: RACK}, Ranks("index", "group", 3)) == {
        "required": RACK,
        "podIndexLabel": "index",
        "subGroupIndexLabel": "group",
        "subGroupCount": 3,
    }


@pytest.mark.parametrize(
    "template", [None, {}, {"metadata": None}, {"metadata": {"annotations": 1}}]
)
def test_a_template_of_any_form_may_ask_nothing(template: Any) -> None:
    assert asking_annotations(template) == {}


def test_only_annotations_that_ask_count() -> None:
    notes = {REQUIRED_TOPOLOGY: RACK, PREFERRED_TOPOLOGY: 7, "other": "x"}
    assert asking_annotations({"metadata": {"annotations": notes}}) == {REQUIRED_TOPOLOGY: RACK}


def said(annotations: dict[str, str], count: int | None = 6) -> list[tuple[str, str]]:
    return [(error.path, error.message) for error in topology_errors("a", annotations, count)]


@pytest.mark.parametrize(
    "annotations",
    [
        {REQUIRED_TOPOLOGY: RACK, SLICE_LEVEL: HOST, SLICE_SIZE: "3"},
        {PREFERRED_TOPOLOGY: RACK, POD_SET_GROUP: "g"},
        {UNCONSTRAINED_TOPOLOGY: "0"},
        {SLICE_CONSTRAINTS: layers((RACK, 6), (HOST, 3))},
    ],
)
def test_what_can_be_met_is_admitted(annotations: dict[str, str]) -> None:
    assert said(annotations) == []


@pytest.mark.parametrize(
    ("annotations", "key", "words"),
    [
        (
            {REQUIRED_TOPOLOGY: RACK, UNCONSTRAINED_TOPOLOGY: "true"},
            "",
            "more than one topology annotation",
        ),
        ({REQUIRED_TOPOLOGY: "a b"}, REQUIRED_TOPOLOGY, "name part must"),
        ({PREFERRED_TOPOLOGY: "/a"}, PREFERRED_TOPOLOGY, "prefix part must be non-empty"),
        ({UNCONSTRAINED_TOPOLOGY: "yes"}, UNCONSTRAINED_TOPOLOGY, "must be a boolean value"),
        ({SLICE_LEVEL: "-", SLICE_SIZE: "2"}, SLICE_LEVEL, "name part must"),
        ({SLICE_LEVEL: RACK}, SLICE_SIZE, f"must be set when '{SLICE_LEVEL}' is specified"),
        ({SLICE_SIZE: "2"}, SLICE_SIZE, f"may not be set when '{SLICE_LEVEL}' is not specified"),
        ({SLICE_LEVEL: RACK, SLICE_SIZE: "two"}, SLICE_SIZE, "must be a numeric value"),
        ({SLICE_LEVEL: RACK, SLICE_SIZE: " 2"}, SLICE_SIZE, "must be a numeric value"),
        ({SLICE_LEVEL: RACK, SLICE_SIZE: "2_0"}, SLICE_SIZE, "must be a numeric value"),
        ({SLICE_LEVEL: RACK, SLICE_SIZE: "\u0662"}, SLICE_SIZE, "must be a numeric value"),
        ({SLICE_LEVEL: RACK, SLICE_SIZE: "2147483648"}, SLICE_SIZE, "must be a numeric value"),
        ({SLICE_LEVEL: RACK, SLICE_SIZE: "9" * 9999}, SLICE_SIZE, "must be a numeric value"),
        ({SLICE_LEVEL: RACK, SLICE_SIZE: "0"}, SLICE_SIZE, "greater than or equal to 1"),
        ({SLICE_LEVEL: RACK, SLICE_SIZE: "7"}, SLICE_SIZE, "greater than pod set count 6"),
        ({SLICE_LEVEL: RACK, SLICE_SIZE: "4"}, SLICE_SIZE, "evenly divide the pod set count 6"),
        ({POD_SET_GROUP: "7", REQUIRED_TOPOLOGY: RACK}, POD_SET_GROUP, "must not be a number"),
        (
            {POD_SET_GROUP: "g"},
            POD_SET_GROUP,
            f"neither '{PREFERRED_TOPOLOGY}' nor '{REQUIRED_TOPOLOGY}' is specified",
        ),
        (
            {POD_SET_GROUP: "g", REQUIRED_TOPOLOGY: RACK, SLICE_SIZE: "2", SLICE_LEVEL: RACK},
            POD_SET_GROUP,
            f"may not be set when '{SLICE_SIZE}' is specified",
        ),
        ({SLICE_CONSTRAINTS: "["}, SLICE_CONSTRAINTS, "must be a valid JSON array"),
        ({SLICE_CONSTRAINTS: "[" * 99_999}, SLICE_CONSTRAINTS, "must be a valid JSON array"),
        ({SLICE_CONSTRAINTS: "[]"}, SLICE_CONSTRAINTS, "must be a valid JSON array"),
        (
            {SLICE_CONSTRAINTS: json.dumps(LAYERS)},
            f"{SLICE_CONSTRAINTS}[0].size",
            "evenly divide the pod set",
        ),
        (
            {SLICE_CONSTRAINTS: json.dumps([{"topology": RACK, "size": 9}])},
            f"{SLICE_CONSTRAINTS}[0].size",
            "greater than pod set count 6",
        ),
        (
            {
                SLICE_CONSTRAINTS: json.dumps(
                    [{"topology": RACK, "size": 6}, {"topology": RACK, "size": 4}]
                )
            },
            f"{SLICE_CONSTRAINTS}[1].topology",
            f"{RACK} (also at index 0)",
        ),
        (
            {
                SLICE_CONSTRAINTS: json.dumps(
                    [{"topology": RACK, "size": 6}, {"topology": HOST, "size": 4}]
                )
            },
            f"{SLICE_CONSTRAINTS}[1].size",
            "must evenly divide the parent layer size 6",
        ),
        (
            {SLICE_CONSTRAINTS: json.dumps([{"topology": "", "size": 0}])},
            f"{SLICE_CONSTRAINTS}[0].size",
            "greater than or equal to 1",
        ),
        (
            {SLICE_CONSTRAINTS: json.dumps(LAYERS[:1]), SLICE_SIZE: "2"},
            SLICE_CONSTRAINTS,
            f"may not be set when '{SLICE_SIZE}' is specified",
        ),
    ],
)
def test_a_mistake_is_shown_at_its_place(annotations: dict[str, str], key: str, words: str) -> None:
    name, _, rest = key.partition("[")
    path = f"a[{name}]{'[' + rest if rest else ''}" if key else "a"
    assert any(at == path and words in text for at, text in said(annotations)), said(annotations)


def test_without_a_number_of_pods_slices_may_have_any_size() -> None:
    assert said({SLICE_LEVEL: RACK, SLICE_SIZE: "4"}, None) == []


Given = tuple[str, dict[str, Any], int]


def member(count: int, **notes: str) -> Given:
    keys = {"group": POD_SET_GROUP, "required": REQUIRED_TOPOLOGY, "preferred": PREFERRED_TOPOLOGY}
    annotations = {keys[name]: text for name, text in notes.items()}
    return f"p{count}", {"metadata": {"annotations": annotations}}, count


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([member(1, group="g", required=RACK)], "groups of exactly 2 pod sets, got: 1 pod set(s)"),
        (
            [member(count, group="g", required=RACK) for count in (2, 3)],
            "got: 2 replica(s) and 3 replica(s) in the group",
        ),
        (
            [member(1, group="g", required=RACK), member(2, group="g", preferred=RACK)],
            "consistent with 'p2.metadata.annotations' in group 'g'",
        ),
        (
            [member(1, group="g", required=RACK), member(2, group="g", required=HOST)],
            "consistent with 'p1.metadata.annotations' in group 'g'",
        ),
    ],
)
def test_a_group_has_a_leader_and_one_request(members: list[Given], words: str) -> None:
    texts = [error.message for error in errors_of_pod_sets(members)]
    assert any(words in text for text in texts), texts
    assert len(texts) == len(members)


def test_two_pod_sets_with_one_request_are_a_group() -> None:
    members = [member(1, group="g", required=RACK), member(4, group="g", required=RACK)]
    assert [*errors_of_pod_sets([*members, member(3, required=HOST)])] == []
