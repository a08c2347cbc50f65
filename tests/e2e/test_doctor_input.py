"""`kueuelib doctor` in clusters without our kinds, and for people who may not read everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rest import KUEUE, Rest
from ward import BINDINGS, CRDS, DOMAIN, ROLES, doctor, groups, typed

from kueuelib.api.crd import all_crds
from kueuelib.testing.background import BackgroundServer


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BackgroundServer, Path]]:
    """A server that obeys roles, without anything of ours."""
    with BackgroundServer(authorization="rbac") as server:
        yield server, tmp_path_factory.mktemp("bare")


def test_without_our_kinds_each_is_named_with_the_fix(
    bare: tuple[BackgroundServer, Path],
) -> None:
    server, folder = bare
    done = doctor(server.write_kubeconfig(folder / "admin"), "-o", "json")
    assert done.returncode == 4, done.stderr
    report = json.loads(done.stdout)
    missing = [one for one in report["findings"] if one["check"] == "crd-missing"]
    assert len(missing) == len(all_crds())
    (fix,) = {one["fix"] for one in missing}
    assert fix.startswith("kueuelib install  # with --webhook-url URL if the manager runs outside")
    skipped = {one["check"]: one["why"] for one in report["notChecked"]}
    assert skipped["queue-inactive"] == "the cluster does not serve the queueing kinds"
    assert "leader" not in skipped


def test_who_may_read_nothing_gets_one_line(bare: tuple[BackgroundServer, Path]) -> None:
    server, folder = bare
    done = doctor(server.write_kubeconfig(folder / "nobody", server.add_user("nobody")))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("kueuelib: nothing could be checked: ")
    assert "use a kubeconfig that may list the queueing kinds" in line


def test_who_may_read_our_kinds_alone_gets_what_these_tell(
    bare: tuple[BackgroundServer, Path],
) -> None:
    server, folder = bare
    admin = server.write_kubeconfig(folder / "admin")
    with Rest(admin) as rest:
        for definition in all_crds():
            definition["spec"]["conversion"] = {"strategy": "None"}
            rest.create(CRDS, definition)
        rest.create(
            f"{KUEUE}/clusterqueues", {**typed("ClusterQueue", "q"), "spec": groups("f", "1")}
        )
        role = {"name": "reader"}
        rule = {"apiGroups": [DOMAIN], "resources": ["*"], "verbs": ["get", "list"]}
        rest.create(ROLES, {"metadata": role, "rules": [rule]})
        named = {"apiGroup": "rbac.authorization.k8s.io", **role}
        binding = {
            "roleRef": {**named, "kind": "ClusterRole"},
            "subjects": [{**named, "kind": "User"}],
        }
        rest.create(BINDINGS, {"metadata": role, **binding})
    done = doctor(
        server.write_kubeconfig(folder / "reader", server.add_user("reader")), "-o", "json"
    )
    assert done.returncode == 4, done.stderr
    report = json.loads(done.stdout)
    found = {one["check"] for one in report["findings"]}
    assert found == {"flavor-missing", "queue-inactive", "queue-status"}
    skipped = {one["check"]: one["why"] for one in report["notChecked"]}
    assert "fits-but-waits" in report["checked"]  # no ClusterQueue selects by labels
    assert skipped["quota-promised"].startswith("nodes is forbidden")
    assert skipped["webhook-certificate"].startswith("secrets")
