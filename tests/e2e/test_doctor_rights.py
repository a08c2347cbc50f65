"""`kueuelib doctor` and `pending` for somebody who may read queues and Workloads alone, and where
only a part is installed.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rest import KUEUE, Rest
from warm import kueuelib

from kueuelib.api.crd import all_crds
from kueuelib.testing.background import BackgroundServer

DOMAIN = "kueue.x-k8s.io"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
QUEUE_CHECKS = {
    "assumption-orphaned",
    "check-pending",
    "feature-missing",
    "finalizer-stuck",
    "fits-but-waits",
    "flavor-missing",
    "flavor-topology",
    "local-queue",
    "never-fits",
    "object-unreadable",
    "placement-stale",
    "policy-idle",
    "queue-inactive",
    "queue-name",
    "queue-status",
    "quota-exceeded",
    "quota-lost",
    "quota-unowned",
    "topology-levels",
    "topology-overlap",
}


def test_who_may_read_queues_and_workloads_alone_gets_the_checks_of_them(tmp_path: Path) -> None:
    with BackgroundServer(authorization="rbac") as server:
        with Rest(server.write_kubeconfig(tmp_path / "admin")) as rest:
            for definition in all_crds():
                definition["spec"]["conversion"] = {"strategy": "None"}
                rest.create(CRDS, definition)
            quota = {"name": "cpu", "nominalQuota": "1"}
            flavors = [{"name": "f", "resources": [quota]}]
            groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
            queue = {
                "apiVersion": f"{DOMAIN}/v1beta2",
                "kind": "ClusterQueue",
                "metadata": {"name": "q"},
                "spec": {"namespaceSelector": {}, "resourceGroups": groups},
            }
            rest.create(f"{KUEUE}/clusterqueues", queue)
            plurals = ["clusterqueues", "localqueues", "resourceflavors", "workloads"]
            rule = {"apiGroups": [DOMAIN], "resources": plurals, "verbs": ["get", "list"]}
            rest.create(ROLES, {"metadata": {"name": "some"}, "rules": [rule]})
            named = {"apiGroup": "rbac.authorization.k8s.io", "name": "some"}
            binding = {
                "roleRef": {**named, "kind": "ClusterRole"},
                "subjects": [{**named, "kind": "User"}],
            }
            rest.create(BINDINGS, {"metadata": {"name": "some"}, **binding})
        some = server.write_kubeconfig(tmp_path / "some", server.add_user("some"))
        report = json.loads(kueuelib("doctor", "-o", "json", "--kubeconfig", some).stdout)
        pending = kueuelib("pending", "-A", "--kubeconfig", some)
    assert {*report["checked"]} == QUEUE_CHECKS
    found = {one["check"] for one in report["findings"]}
    assert found == {"flavor-missing", "queue-inactive", "queue-status"}
    assert {"AdmissionCheck", "Cohort", "Namespace"} <= {*report["notSeen"]}
    skipped = {one["check"]: one["why"] for one in report["notChecked"]}
    assert skipped["cohort-cycle"].startswith("cohorts.kueue.x-k8s.io is forbidden")
    (note,) = [line for line in pending.stdout.splitlines() if "count as absent" in line]
    assert note.startswith("Note: cohorts, ")
    assert note.endswith(" were not read and count as absent: you may not list them")
    assert "Note: admissionchecks were not read and are taken to be Active: " in pending.stdout


def test_a_half_installed_cluster_is_told_part_by_part(tmp_path: Path) -> None:
    with BackgroundServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kc")
        with Rest(kubeconfig) as rest:
            for definition in all_crds()[1:]:
                definition["spec"]["conversion"] = {"strategy": "None"}
                rest.create(CRDS, definition)
        done = kueuelib("doctor", "-o", "json", "--kubeconfig", kubeconfig)
    assert done.returncode == 4, done.stderr
    found = {one["check"] for one in json.loads(done.stdout)["findings"]}
    expected = {"crd-missing", "leader", "webhook-missing", "webhook-certificate"}
    assert found == {*expected, "crd-conversion", "account-missing"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "there is no such file; give the path of an existing kubeconfig"),
        (["--config", "/absent/manager.yaml"], "/absent/manager.yaml"),
    ],
)
def test_what_is_not_there_is_one_line(args: list[str], words: str, tmp_path: Path) -> None:
    done = kueuelib("doctor", *args, "--kubeconfig", tmp_path / "unused")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert words in line


def test_a_manager_with_rights_of_its_own_is_told_what_it_lacks(tmp_path: Path) -> None:
    """`--self` asks with SelfSubjectAccessReviews, which everybody may; all are read and kept."""
    with BackgroundServer(authorization="rbac") as server:
        with Rest(server.write_kubeconfig(tmp_path / "admin")) as rest:
            rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
            rest.create(ROLES, {"metadata": {"name": "looks"}, "rules": [rule]})
            named = {"apiGroup": "rbac.authorization.k8s.io", "name": "looks"}
            binding = {
                "roleRef": {**named, "kind": "ClusterRole"},
                "subjects": [{**named, "kind": "User"}],
            }
            rest.create(BINDINGS, {"metadata": {"name": "looks"}, **binding})
        kubeconfig = server.write_kubeconfig(tmp_path / "looks", server.add_user("looks"))
        asked = ("-o", "json", "--kubeconfig", kubeconfig)
        report = json.loads(kueuelib("doctor", *asked, "--self").stdout)
        lacks = " ".join(
            one["problem"] for one in report["findings"] if one["check"] == "permissions"
        )
        assert "it may not patch, delete jobs.batch" in lacks
        assert "it may not create, patch events" in lacks
        assert not any(verb in lacks for verb in ("list", "watch"))
        others = json.loads(kueuelib("doctor", *asked).stdout)["notChecked"]
        (why,) = [one["why"] for one in others if one["check"] == "permissions"]
        assert "subjectaccessreviews" in why
