"""`kueuelib pending` as a user types it, with all rights and with few."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rest import JOBS, KUEUE, WORKLOADS, Obj, Rest, eventually, job, queues, urgent
from warm import kueuelib

from kueuelib.api.crd import all_crds
from kueuelib.testing.background import BackgroundServer
from kueuelib.testing.processes import LocalCluster

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "kueue.x-k8s.io"
PATIENCE = 120


def pending(kubeconfig: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return kueuelib("pending", *args, "--kubeconfig", kubeconfig)


def items(kubeconfig: Path, *args: str) -> list[Obj]:
    done = pending(kubeconfig, *args, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: list[Obj] = json.loads(done.stdout)["items"]
    return found


def test_the_order_is_that_of_the_queue_and_the_change_admits(
    cluster: LocalCluster, rest: Rest
) -> None:
    queues(rest, cpu=2)
    rest.create(JOBS, job("first", seconds=600, pods=2))
    eventually(lambda: not rest.get(f"{JOBS}/first")["spec"]["suspend"])
    rest.create(JOBS, job("third", seconds=600, pods=2))
    rest.create(JOBS, urgent(rest, job("second", seconds=600, pods=2)))
    eventually(lambda: len(rest.items(WORKLOADS)) == 3)
    eventually(lambda: rest.get(f"{KUEUE}/clusterqueues/team")["status"]["pendingWorkloads"] == 2)

    second, third = items(cluster.kubeconfig, "-q", "team", "--changes")
    assert [second["owner"], third["owner"]] == ["Job/second", "Job/third"]
    assert [second["place"], third["place"]] == [1, 2]
    assert second["verdict"] == "quota in use"
    assert second["why"] == "cpu on on-demand: 2 more needed"
    assert second["smallestChange"]["details"]["amounts"][0]["by"] == 2000
    assert items(cluster.kubeconfig, "-c", "team", "--changes") == [second, third]
    assert items(cluster.kubeconfig, "-A", "--changes", "2") == [second, third]
    unsearched = {"changesSearched": False, "smallestChange": None}
    assert items(cluster.kubeconfig, "-A") == [second | unsearched, third | unsearched]
    text = pending(cluster.kubeconfig, "-c", "team", "--changes").stdout.splitlines()
    assert text[0].split()[:3] == ["CLUSTERQUEUE", "PLACE", "NAMESPACE"]
    assert "cpu on on-demand: 2 more needed" in text[1]
    assert "raise nominalQuota of flavor on-demand: cpu by 2 (to 4)" in text[1]

    queue = rest.get(f"{KUEUE}/clusterqueues/team")
    groups = queue["spec"]["resourceGroups"]
    groups[0]["flavors"][0]["resources"][0]["nominalQuota"] = "4"
    rest.merge(f"{KUEUE}/clusterqueues/team", {"spec": {"resourceGroups": groups}})
    eventually(lambda: not rest.get(f"{JOBS}/second")["spec"]["suspend"])
    eventually(lambda: [one["owner"] for one in items(cluster.kubeconfig)] == ["Job/third"])


# --- few rights


class Users:
    """A server that obeys roles, with queues and a Workload that waits in `ns`."""

    def __init__(self, server: BackgroundServer, folder: Path) -> None:
        self.server, self._folder = server, folder
        self.admin = server.write_kubeconfig(folder / "admin")
        with Rest(self.admin) as rest:
            for crd in all_crds():
                crd["spec"]["conversion"] = {"strategy": "None"}
                rest.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
            rest.create("/api/v1/namespaces", {"metadata": {"name": "ns"}})
            queues(rest, cpu=2, local=False)
            spec = {"clusterQueue": "team"}
            rest.create(
                f"{KUEUE}/namespaces/ns/localqueues",
                {**_typed("LocalQueue", "lq"), "spec": spec},
            )
            container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}
            pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
            rest.create(
                f"{KUEUE}/namespaces/ns/workloads",
                {**_typed("Workload", "w"), "spec": {"queueName": "lq", "podSets": [pods]}},
            )

    def user(self, name: str, resources: list[str], *, namespace: str = "") -> Path:
        """The kubeconfig of somebody who may list some of our kinds, everywhere or in one place."""
        path = self.server.write_kubeconfig(self._folder / name, self.server.add_user(name))
        kind = "Role" if namespace else "ClusterRole"
        where = f"{RBAC}/namespaces/{namespace}/" if namespace else f"{RBAC}/"
        rules = [{"apiGroups": [GROUP], "resources": resources, "verbs": ["get", "list"]}]
        with Rest(self.admin) as rest:
            meta = {"metadata": {"name": name}}
            rest.create(f"{where}{kind.lower()}s", {**meta, "rules": rules})
            ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
            binding = {**meta, "roleRef": ref, "subjects": [subject]}
            rest.create(f"{where}{kind.lower()}bindings", binding)
        return path


def _typed(kind: str, name: str) -> Obj:
    return {"apiVersion": f"{GROUP}/v1beta2", "kind": kind, "metadata": {"name": name}}


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    with BackgroundServer(authorization="rbac") as server:
        yield Users(server, tmp_path_factory.mktemp("users"))


def test_a_user_of_one_namespace_gets_what_the_manager_wrote(users: Users) -> None:
    mine = users.user("mine", ["workloads", "localqueues"], namespace="ns")
    done = pending(mine, "-n", "ns")
    assert done.returncode == 0, done.stderr
    title, row, note, *rest = done.stdout.splitlines()
    assert title.startswith("CLUSTERQUEUE")
    assert row.split()[:4] == ["team", "-", "ns", "w"]
    assert "not evaluated" in row
    assert note.startswith("Note: clusterqueues, cohorts,")
    assert "cannot be listed in the whole cluster" in note
    assert rest
    (item,) = items(mine, "-n", "ns", "--changes")
    assert (item["place"], item["smallestChange"]) == (None, None)


def test_a_reader_of_our_kinds_alone_gets_the_engines_answer(users: Users) -> None:
    reader = users.user("reader", ["*"])
    (item,) = items(reader, "-A", "--changes")
    assert (item["place"], item["verdict"]) == (1, "exceeds quota")
    assert item["smallestChange"]["details"]["amounts"][0]["by"] == 1000


def test_a_terminal_shows_progress_and_then_the_rows(users: Users) -> None:
    """The page and the table; both leave nothing of it behind."""
    for command in ("pending", "report"):
        shown, leader = b"", pty.openpty()
        args = [sys.executable, "-m", "kueuelib", command, "--changes", "--kubeconfig", users.admin]
        args += ["-A"] if command == "pending" else []
        with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=leader[1]) as process:
            os.close(leader[1])
            printed, _ = process.communicate(timeout=PATIENCE)
        with contextlib.suppress(OSError):  # all of it was read
            while piece := os.read(leader[0], 4096):
                shown += piece
        os.close(leader[0])
        assert process.returncode == 0
        clear = b"\r\x1b[K"
        assert shown.startswith(clear + b"searching for changes: 1 of 1, ns/w" + clear)
        assert shown.replace(clear, b"") == b"searching for changes: 1 of 1, ns/w"
        assert b"raise nominalQuota of flavor on-demand: cpu by 1 (to 3)" in printed


def test_questions_import_nothing_that_they_do_not_use(users: Users) -> None:
    """Most of the time until the first answer is the time for imports."""
    code = """
import contextlib, io, sys
from kueuelib.cli import main
with contextlib.redirect_stdout(io.StringIO()) as told, contextlib.suppress(SystemExit):
    main()
assert "ns/w" in told.getvalue() or " w " in told.getvalue(), told.getvalue()
print([name for name in {unused!r} if name in sys.modules])
"""
    unused = ("rich", "cryptography", "aiohttp", "jsonpatch", "urllib.request")
    unused += (
        "kueuelib.embedded",
        "kueuelib.jobs.pods.compose",
        "kueuelib.jobs.contract.generic_job",
        "kueuelib.jobs.contract.settings",
        "kueuelib.controllers.webhooks",
        "kueuelib.machinery.election",
        "kueuelib.machinery.reflector_protocol",
        "kueuelib.runtime.importing",
        "kueuelib.runtime.certificates",
        "kueuelib.scheduler.explain.answer",
        "kueuelib.scheduler.explain.changes",
        "kueuelib.scheduler.explain.problems",
        "kueuelib.simulator",
        "kueuelib.workload.states",
    )
    for args in (("pending", "-A"), ("report",)):
        done = subprocess.run(
            [sys.executable, "-c", code.format(unused=unused), *args, "--kubeconfig", users.admin],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        assert done.stdout.strip() == "[]", args


def test_without_workloads_one_line_says_what_to_ask_for(users: Users) -> None:
    nobody = users.user("nobody", ["localqueues"])
    for args, fix in ((("-A",), "name a namespace with -n"), (("-n", "ns"), "ask for the right")):
        done = pending(nobody, *args)
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith("kueuelib: Workloads may not be listed")
        assert fix in line


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["-q", "absent", "-n", "ns"], 1, "LocalQueue absent does not exist in namespace ns"),
        (["-c", "absent"], 1, "ClusterQueue absent does not exist; there are team"),
        (["-n", "absent"], 1, "Namespace absent does not exist; there are"),
        (["-A", "-n", "ns"], 2, "leave one out"),
        (["-q", "lq", "-c", "team"], 2, "give -q without -A and -c"),
        (["--config", "/absent.yaml"], 2, "/absent.yaml"),
    ],
)
def test_what_cannot_be_answered_is_one_line(
    users: Users, args: list[str], code: int, words: str
) -> None:
    done = pending(users.admin, *args)
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    assert words in line


def test_without_our_kinds_the_fix_is_named(tmp_path: Path) -> None:
    with BackgroundServer() as server:
        done = pending(server.write_kubeconfig(tmp_path / "kc"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "run kueuelib install first" in line
