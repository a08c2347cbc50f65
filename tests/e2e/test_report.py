"""`kueuelib report` as a user types it, and the page in a real browser."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from browser import ABSENT, CHROMIUM, Page, browser
from real_plane import ready_node
from rest import KUEUE, Obj, Rest, eventually
from test_pending import Users
from warm import kueuelib

from kueuelib.testing.background import BackgroundServer

PATIENCE = 120
COMMAND = [sys.executable, "-m", "kueuelib", "report"]


def report(kubeconfig: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return kueuelib("report", *args, "--kubeconfig", kubeconfig)


@contextmanager
def served(kubeconfig: Path, *args: str) -> Iterator[str]:
    """The address of a page that is served; the server ends on SIGTERM, without a word."""
    command = [*COMMAND, "--serve", *args, "--kubeconfig", str(kubeconfig)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"serving (http://127\.0\.0\.1:\d+/) until Ctrl-C\n", line)
            assert found, line or process.communicate()[1]
            yield found[1]
            process.send_signal(signal.SIGTERM)
            _, complaints = process.communicate(timeout=PATIENCE)
            assert (process.returncode, complaints) == (0, "")
        finally:
            process.kill()


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Users]:
    """A ClusterQueue `team` of two CPUs, and Workload `ns/w`, which asks for three."""
    with BackgroundServer(authorization="rbac") as server:
        yield Users(server, tmp_path)


def workload(name: str, cpu: int = 1) -> Obj:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {"queueName": "lq", "podSets": [pods]},
    }


def test_the_page_says_what_waits_and_the_smallest_change(users: Users) -> None:
    done = report(users.admin)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("<!DOCTYPE html>\n")
    assert "<h1>Queues of kueuelib</h1>" in done.stdout
    assert "1 Workload waits" in done.stdout
    assert "raise nominalQuota" not in done.stdout
    done = report(users.admin, "--changes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "raise nominalQuota of flavor on-demand: cpu by 1 (to 3)" in done.stdout


def test_a_user_of_one_namespace_gets_a_page_that_says_what_it_lacks(users: Users) -> None:
    mine = users.user("mine", ["workloads", "localqueues"], namespace="ns")
    done = report(mine, "-n", "ns")
    assert done.returncode == 0, done.stderr
    assert "clusterqueues, cohorts, " in done.stdout
    assert "cannot be listed in the whole cluster" in done.stdout
    assert "ns/w" in done.stdout
    assert re.search(r" from https://127.0.0.1:\d+, namespace ns\.", done.stdout)


def test_without_any_rights_one_line_says_what_to_ask_for(users: Users) -> None:
    done = report(users.user("nobody", ["localqueues"]))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("kueuelib: neither ClusterQueues nor Workloads may be listed")
    assert "name a namespace with -n" in line


def test_a_port_in_use_is_refused(users: Users) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = report(users.admin, "--serve", "--port", str(taken.getsockname()[1]))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "the address is in use" in done.stderr


def row(name: str) -> str:
    return f"document.getElementById('waits/ns/{name}')"


def shown(*names: str) -> str:
    """Whether all of these Workloads are on the page."""
    return " && ".join(f"{row(name)} !== null" for name in names)


STATUS = "document.getElementById('status').textContent"
FOCUSED = "(document.activeElement.id || document.activeElement.textContent.trim())"


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=ABSENT)
async def test_a_browser_shows_what_happens_while_it_happens(users: Users, tmp_path: Path) -> None:
    with served(users.admin) as url, Rest(users.admin) as rest:
        async with browser(tmp_path / "profile") as page:
            await page.open(url)
            await page.until(f"{STATUS} === 'Live.'")
            assert "exceeds quota" in await page.ask(f"{row('w')}.textContent")
            await page.until(f"{row('w')}.textContent.includes('raise nominalQuota')")
            await _hears_of_changes(page, rest)
            await _pauses(page, rest)
            await _explains(page)
            await _filters(page)
            assert page.said == []


async def _hears_of_changes(page: Page, rest: Rest) -> None:
    rest.create(f"{KUEUE}/namespaces/ns/workloads", workload("new"))
    await page.until(shown("new"))
    assert await page.ask(f"{row('new')}.cells[0].textContent") == "2"
    assert await page.until(f"{row('new')}.querySelector('time').textContent")
    await page.ask(f"{row('w')}.querySelector('summary').click()")
    rest.delete(f"{KUEUE}/namespaces/ns/workloads/new")
    await page.until(f"!{row('new')}")
    assert await page.ask(f"{row('w')}.querySelector('details').open")


async def _pauses(page: Page, rest: Rest) -> None:
    await page.ask("document.getElementById('pause').click()")
    assert await page.ask(STATUS) == "Paused."
    read = await page.ask("document.getElementById('read').textContent")
    rest.create(f"{KUEUE}/namespaces/ns/workloads", workload("later"))
    rest.create(f"{KUEUE}/namespaces/ns/workloads", workload("latest"))
    await page.ask("new Promise(done => setTimeout(done, 2500))")
    assert not await page.ask(shown("later"))
    assert await page.ask("document.getElementById('read').textContent") == read
    await page.ask("document.getElementById('pause').click()")
    await page.until(shown("later", "latest"))


async def _explains(page: Page) -> None:
    """With the keyboard alone; the focus comes back to the button."""
    await page.ask("document.getElementById('waits/ns/w/b').focus()")
    await page.press("Enter", 13, "\r")
    await page.until("document.getElementById('answer').textContent.includes('nominalQuota')")
    assert await page.ask("document.getElementById('answer-title').textContent") == "ns/w"
    await page.press("Escape", 27)
    await page.until("!document.getElementById('answers').open")
    assert await page.until(f"{FOCUSED} === 'waits/ns/w/b'")


async def _filters(page: Page) -> None:
    await page.ask("document.getElementById('filter').focus()")
    await page.call("Input.insertText", text="LATE")
    await page.until("document.getElementById('found').textContent === '2 found'")
    assert await page.ask(f"getComputedStyle({row('w')}).display") == "none"


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=ABSENT)
async def test_a_browser_reaches_all_of_it_with_the_keyboard(users: Users, tmp_path: Path) -> None:
    """In the order of the page, with a way past the tables; light, dark, and in words."""
    text = report(users.admin).stdout
    file = tmp_path / "queue.html"
    file.write_text(text)
    async with browser(tmp_path / "profile") as page:
        await page.open(file.as_uri())
        reached = []
        for _ in range(10):
            await page.press("Tab", 9)
            reached.append(await page.ask(FOCUSED))
        assert reached[:7] == [
            *("Skip to the Workloads that wait", "Quota", "Waiting", "Waiting for checks"),
            *("Running", "Evictions", "filter"),
        ]
        assert any(each.startswith("exceeds quota: cpu on ") for each in reached), reached
        await page.press("Enter", 13, "\r")
        tree = (await page.call("Accessibility.getFullAXTree"))["nodes"]
        roles = [one["role"]["value"] for one in tree if not one.get("ignored")]
        for role in ("banner", "main", "navigation", "contentinfo", "search", "table"):
            assert role in roles
        assert roles.count("columnheader") >= 17
        assert "image" not in roles
        looks = []
        for scheme in ("light", "dark"):
            await page.scheme(scheme)
            looks.append(await page.picture())
        assert looks[0] != looks[1]
        assert page.said == []


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=ABSENT)
async def test_a_page_says_when_its_server_is_gone(users: Users, tmp_path: Path) -> None:
    async with browser(tmp_path / "profile") as page:
        with served(users.admin) as url:
            await page.open(url)
            await page.until(f"{STATUS} === 'Live.'")
            port = url.rstrip("/").rpartition(":")[2]
        await page.until(f"{STATUS}.startsWith('Not connected')")
        assert await page.ask(shown("w"))
        with Rest(users.admin) as rest:
            rest.create(f"{KUEUE}/namespaces/ns/workloads", workload("meanwhile"))
        with served(users.admin, "--port", port):
            await page.until(shown("meanwhile"))
            assert await page.ask(STATUS) == "Live."


def test_a_live_page_shows_nodes_once_there_is_a_topology(users: Users) -> None:
    with served(users.admin) as url, Rest(users.admin) as rest, httpx.Client(timeout=30) as http:
        assert "r7" not in http.get(url).text
        with http.stream("GET", f"{url}events"):
            labels = {"pool": "x", "rack": "r7", "kubernetes.io/hostname": "n7"}
            ready_node(rest, "n7", labels, cpu="4", pods="10")
            levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
            rest.create(f"{KUEUE}/topologies", queueing("Topology", "t", {"levels": levels}))
            flavor = queueing("ResourceFlavor", "hosts", {"topologyName": "t"})
            flavor["spec"]["nodeLabels"] = {"pool": "x"}
            rest.create(f"{KUEUE}/resourceflavors", flavor)
            quota = {"name": "cpu", "nominalQuota": "4"}
            flavors = [{"name": "hosts", "resources": [quota]}]
            group = {"coveredResources": ["cpu"], "flavors": flavors}
            spec = {"namespaceSelector": {}, "resourceGroups": [group]}
            rest.create(f"{KUEUE}/clusterqueues", queueing("ClusterQueue", "placing", spec))

            def shows() -> bool:
                with httpx.Client(timeout=30) as other:
                    return "r7" in other.get(url).text

            assert eventually(shows)


def queueing(kind: str, name: str, spec: Obj) -> Obj:
    meta = {"name": name}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": meta, "spec": spec}
