from __future__ import annotations

import pytest

from kueuelib.api.names import (
    is_dns1035_label,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_go_bool,
    is_label_value,
    is_qualified_name,
    workload_name,
)


@pytest.mark.parametrize(
    ("kind", "group", "name", "wanted"),
    [
        ("Job", "batch", "myjob", "job-myjob-2f79a"),
        ("MPIJob", "kubeflow.org", "myjob", "mpijob-myjob-98672"),
        ("Pod", "", "foo", "pod-foo-1df1b"),
        ("Job", "batch", "a" * 252, "job-" + "a" * 243 + "-f1c14"),
    ],
)
def test_names_without_a_uid_are_the_well_known_ones(kind, group, name, wanted):
    assert workload_name(kind, group, name, "") == wanted


def test_a_recreated_owner_gets_another_workload():
    names = {workload_name("Job", "batch", "myjob", uid) for uid in ("", "1", "2")}
    assert len(names) == 3


@pytest.mark.parametrize("length", [1, 240, 243, 244, 253])
def test_names_of_workloads_are_always_valid(length):
    name = workload_name("Job", "batch", ("ab." * 100)[: length - 1] + "z", "u")
    assert is_dns1123_subdomain(name)
    assert len(name) <= 253


def test_a_limit_is_the_length_of_the_longest_name():
    for limit in (63, 253):
        assert len(workload_name("Job", "batch", "a" * 300, "u", limit)) == limit


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (
            is_dns1123_subdomain,
            ["a", "a.b-c", "0", "a" * 253],
            ["", "A", "a_b", "-a", "a.", "a..b"],
        ),
        (is_dns1123_subdomain, [], ["a" * 254, "a\n", "ä"]),
        (is_dns1123_label, ["a", "0-a", "a" * 63], ["", "a.b", "a-", "a" * 64]),
        (is_dns1035_label, ["a", "a-0"], ["", "0a", "A", "a" * 64]),
        (
            is_qualified_name,
            ["a", "A_b.c-d", "example.com/Gpu", "a" * 63],
            ["", "/a", "a/", "a/b/c", "_a", "A/b", "a" * 64, "@a"],
        ),
        (is_label_value, ["", "a", "A_b.c", "a" * 63], ["-a", "a-", "a" * 64, "a b"]),
    ],
)
def test_the_syntax_of_names(check, good, bad):
    assert [name for name in good if not check(name)] == []
    assert [name for name in bad if check(name)] == []


def test_booleans_of_annotations_are_those_of_go():
    for text in ("1", "t", "T", "TRUE", "true", "True"):
        assert is_go_bool(text) is True
    for text in ("0", "f", "F", "FALSE", "false", "False"):
        assert is_go_bool(text) is False
    for text in ("", "yes", "tRUE", " true"):
        assert is_go_bool(text) is None
