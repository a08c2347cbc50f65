"""Faults are planted in a cluster with a manager: `kueuelib doctor` finds each of them, and its
command, run as printed, cures it and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

import pytest
from faults import FAULTS
from installed import Installed, installed, outside
from planting import INSTALL, JOBS, LOCAL, NAME, SYSTEM, Fault, job, typed
from real_plane import lacking
from rest import KUEUE, Obj, eventually
from unusual import UNUSUAL, Unusual

from kueuelib.cli.doctor import WORDS

POOL = "kueuelib.dev/pool"
FLAVORS = ("on-demand", "spot")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A server and a manager in pods."""
    with installed(tmp_path_factory.mktemp("doctor")) as cluster:
        use(cluster)
        yield cluster


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A real control plane and a manager outside of it."""
    with outside(tmp_path_factory.mktemp("real")) as cluster:
        use(cluster)
        yield cluster


def use(cluster: Installed) -> None:
    """Quota for everything that nodes have, a queue, and a Job that runs."""
    rest = cluster.rest
    if cluster.outside:
        for number, pool in enumerate(FLAVORS):
            rest.merge(f"/api/v1/nodes/node-{number}", {"metadata": {"labels": {POOL: pool}}})
    node = rest.items("/api/v1/nodes")[0]["status"]["allocatable"]
    quota = [{"name": name, "nominalQuota": node[name]} for name in ("cpu", "memory")]
    for name in FLAVORS:
        spec = {"nodeLabels": {POOL: name}}
        rest.create(f"{KUEUE}/resourceflavors", typed("ResourceFlavor", name, spec=spec))
    group = {
        "coveredResources": ["cpu", "memory"],
        "flavors": [{"name": name, "resources": quota} for name in FLAVORS],
    }
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    rest.create(f"{KUEUE}/clusterqueues", typed("ClusterQueue", "main", spec=spec))
    rest.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    rest.create(LOCAL, typed("LocalQueue", "main", spec={"clusterQueue": "main"}))
    rest.create(JOBS, job("steady"))
    eventually(lambda: not rest.get(f"{JOBS}/steady")["spec"]["suspend"])
    said(cluster, {})


def severities(cluster: Installed, **when: float) -> dict[str, str]:
    found = cluster.found(**when)
    return {f"{name}: {what}": WORDS[one.severity] for (name, what), one in found.items()}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.name)
def test_it_is_found_and_its_command_cures_it_and_nothing_else(
    healthy: Installed, fault: Fault
) -> None:
    cure(healthy, fault, fault.command)


@pytest.mark.slow
@pytest.mark.skipif(bool(lacking()), reason=lacking())
@pytest.mark.parametrize(
    "fault", [one for one in FAULTS if not one.in_pods], ids=lambda one: one.name
)
def test_a_manager_outside_of_a_real_control_plane(real: Installed, fault: Fault) -> None:
    address = f"https://127.0.0.1:{real.cluster.webhook_port}"
    install = f"kueuelib install --webhook-url {address} --config {real.outside}"
    command = fault.command.replace(INSTALL, install)
    if next(iter(fault.found)).startswith("account-missing"):
        token = f"kubectl -n {SYSTEM} create token {NAME} --duration 720h"
        command += f"  # then a new token for the manager at {address}, if it uses one: {token}"
    cure(real, fault, command)


def cure(cluster: Installed, fault: Fault, command: str) -> None:
    """Plants a fault, looks for it, and runs the command."""
    before = cluster.objects()
    fault.plant(cluster)
    try:
        said(cluster, fault.found)
        root = next(iter(fault.found))
        finding = next(one for key, one in cluster.found().items() if ": ".join(key) == root)
        assert finding.fix == command or fnmatchcase(finding.fix, command)
        assert fault.decision in f"{finding.problem} {finding.fix}"
        planted = cluster.objects()
        if fault.runs:
            cluster.run(finding.fix, fault.editor)
        fault.decide(cluster)
        said(cluster, {key: fault.found[key] for key in fault.leaves})
        assert_changed(planted, cluster.objects(), fault.changes)
    finally:
        fault.clean(cluster)

    def same() -> bool:
        assert set(cluster.objects()) == set(before)
        return not cluster.found()

    eventually(same, pause=0.25)


@pytest.mark.parametrize("case", UNUSUAL, ids=lambda one: one.name)
def test_what_is_unusual_but_healthy_is_at_most_a_hint(healthy: Installed, case: Unusual) -> None:
    with case.makes(healthy):
        assert severities(healthy, late=0, haste=0) == case.hints
        if case.lasts:
            assert severities(healthy, haste=0) == {**case.hints, **case.later}
    eventually(lambda: not healthy.found())


def said(cluster: Installed, expected: Mapping[str, str]) -> None:
    """Waits until exactly that is found."""

    def so() -> bool:
        assert severities(cluster) == expected
        return True

    eventually(so, pause=0.25)


def assert_changed(before: Obj, after: Obj, patterns: Iterable[str]) -> None:
    """Checks that objects of all of these patterns, and no others, are other ones than before."""
    changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    matches = {one: {key for key in changed if fnmatchcase(key, one)} for one in patterns}
    assert changed == set().union(*matches.values())
    assert all(matches.values()), matches
