"""The pages of `report` and `simulate` on a phone and on paper, from real runs."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml
from browser import ABSENT, CHROMIUM, NO_PDFTOTEXT, PDFTOTEXT, Page, browser
from rest import JOBS, KUEUE, WORKLOADS, Obj, Rest, condition, eventually
from warm import kueuelib

from kueuelib.embedded.cluster.nodes import nodes_in_racks
from kueuelib.testing.processes import LocalCluster

PHONE = 390
EXAMPLE = Path(__file__).parents[2] / "examples/simulate"
WIDTH = "document.scrollingElement.scrollWidth"
ROWS = """[...document.querySelectorAll('table')].filter((one) => one.checkVisibility())
  .flatMap((one) => [...one.querySelectorAll('tr')])
  .map((row) => [...row.cells].map((cell) => cell.innerText))"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason=ABSENT),
    pytest.mark.skipif(PDFTOTEXT is None, reason=NO_PDFTOTEXT),
]


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with browser(tmp_path / "profile") as found:
        yield found


def squeezed(text: str) -> str:
    """Letters and digits only: where a line ends, and which arrows are drawn, does not matter."""
    return re.sub(r"[\W_]+", "", text)


async def check(page: Page, file: Path, *, least: int) -> None:
    """Nothing is wider than a phone, and every row is on the paper with all of its cells."""
    await page.narrow(PHONE)
    await page.open(file.as_uri())
    assert await page.ask(WIDTH) <= PHONE
    await page.call("Emulation.clearDeviceMetricsOverride")
    await page.ask("document.querySelectorAll('.hidden').forEach((one) => one.remove())")
    rows = Counter(squeezed("".join(row)) for row in await page.ask(ROWS))
    assert rows.total() >= least
    for landscape in (False, True):
        text = await page.printed(file.with_suffix(".pdf"), landscape=landscape)
        paper = squeezed(text)
        missing = [row for row, count in rows.items() if paper.count(row) < count]
        assert not missing, (landscape, missing, text)


def flavor_quota(name: str, cpu: int) -> Obj:
    memory = {"name": "memory", "nominalQuota": f"{3 * cpu}Gi"}
    return {"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}, memory]}


def queue(name: str, cohort: str = "", cpu: int = 8, **spec: object) -> Obj:
    flavors = [flavor_quota("on-demand", cpu), flavor_quota("spot", cpu // 2)]
    group = {"coveredResources": ["cpu", "memory"], "flavors": flavors}
    spec |= {"namespaceSelector": {}, "resourceGroups": [group]}
    spec["preemption"] = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    return named("ClusterQueue", name, {**spec, **({"cohortName": cohort} if cohort else {})})


def named(kind: str, name: str, spec: Obj) -> Obj:
    version = "kueue.x-k8s.io/v1beta2"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def job(name: str, to: str, cpu: str, pods: int = 1, priority: str = "") -> Obj:
    labels = {"kueue.x-k8s.io/queue-name": to}
    if priority:
        labels["kueue.x-k8s.io/priority-class"] = priority
    asked = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": asked}]}
    template = {
        "metadata": {"annotations": {"kueuelib.dev/run-seconds": "3600"}},
        "spec": {**spec, "restartPolicy": "Never"},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }


LONG = "a-training-job-with-a-rather-long-name"
QUEUES = (
    "research-training",
    "research-evaluation",
    "speech-recognition-nightly",
    "checked",
    "racks",
)


def fill(rest: Rest) -> None:
    """Cohorts and queues, idle ones too; Workloads that run, wait, wait for a check, or left."""
    for flavor in ("on-demand", "spot"):
        rest.create(f"{KUEUE}/resourceflavors", named("ResourceFlavor", flavor, {}))
    check = named("AdmissionCheck", "budget", {"controllerName": "example.com/budget"})
    rest.create(f"{KUEUE}/admissionchecks", check)
    active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
    active["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    rest.merge(f"{KUEUE}/admissionchecks/budget/status", {"status": {"conditions": [active]}})
    urgent = {**named("WorkloadPriorityClass", "urgent", {}), "value": 100}
    del urgent["spec"]
    rest.create(f"{KUEUE}/workloadpriorityclasses", urgent)
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}
    made = [queue(name, "science") for name in QUEUES[:2]]
    made += [queue(QUEUES[2]), queue(QUEUES[3], **checks), *in_racks(rest, QUEUES[4])]
    made += [queue(f"idle-{number}", cpu=3) for number in range(5)]
    for each in made:
        rest.create(f"{KUEUE}/clusterqueues", each)
    for name in QUEUES:
        local = named("LocalQueue", name, {"clusterQueue": name})
        rest.create(f"{KUEUE}/namespaces/default/localqueues", local)
    for number, (to, cpu, pods, priority) in enumerate(
        (
            *((QUEUES[0], "2", 4, ""), (QUEUES[0], "1500m", 5, ""), (QUEUES[1], "700m", 3, "")),
            *((QUEUES[2], "8", 1, ""), (QUEUES[2], "3", 1, ""), (QUEUES[2], "9", 1, "urgent")),
            *((QUEUES[2], "8", 1, "urgent"), (QUEUES[0], "1", 30, ""), (QUEUES[3], "2", 2, "")),
            (QUEUES[4], "3", 3, ""),
        )
    ):
        rest.create(JOBS, job(f"{LONG}-{number}", to, cpu, pods, priority))
        eventually(lambda: decided(rest) == number + 1)  # noqa: B023 - it is called at once
    eventually(lambda: any(condition(one, "Evicted") for one in rest.items(WORKLOADS)))
    eventually(lambda: decided(rest) == number + 1)


def in_racks(rest: Rest, name: str) -> Iterator[Obj]:
    """A queue for two racks of two nodes; they exist once the queue does."""
    for node in nodes_in_racks("2x2"):
        taint = {"key": "racks", "effect": "NoSchedule"}
        rest.create("/api/v1/nodes", {**node, "spec": {"taints": [taint]}})
    levels = [{"nodeLabel": "kueuelib.dev/rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    rest.create(f"{KUEUE}/topologies", named("Topology", name, {"levels": levels}))
    spec = {
        "nodeLabels": {"kueuelib.dev/simulated": "true"},
        "topologyName": name,
        "tolerations": [{"key": "racks", "operator": "Exists"}],
    }
    rest.create(f"{KUEUE}/resourceflavors", named("ResourceFlavor", name, spec))
    group = {"coveredResources": ["cpu", "memory"], "flavors": [flavor_quota(name, 32)]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    yield named("ClusterQueue", name, spec)


def decided(rest: Rest) -> int:
    """How many Workloads the scheduler has looked at."""
    return sum(bool(condition(one, "QuotaReserved")) for one in rest.items(WORKLOADS))


async def test_a_report_fits_a_phone_and_paper(
    cluster: LocalCluster, rest: Rest, page: Page, tmp_path: Path
) -> None:
    fill(rest)
    sections = ("nodes", "waits", "awaits", "runs", "left")
    done = kueuelib("report", "--kubeconfig", cluster.kubeconfig)
    assert done.returncode == 0, done.stderr
    file = tmp_path / "queue.html"
    file.write_text(done.stdout)
    for section in sections:
        content = done.stdout.partition(f'<section id="{section}"')[2].partition("<h2")[2]
        assert "<table" in content.partition("<h2")[0], section
    assert "5 more queues: nothing waits, nothing runs" in done.stdout
    await check(page, file, least=30)
    await page.narrow(PHONE)
    row = f"document.getElementById('domain/{QUEUES[4]}/rack-0')"
    assert "node rack-0-node-0" not in await page.ask(f"{row}.innerText")
    await page.ask(f"{row}.querySelector('summary').click()")
    assert "node rack-0-node-0: 2 of 8 cpu free, 30Gi of 32Gi memory free" in await page.ask(
        f"{row}.innerText"
    )
    assert await page.ask(WIDTH) <= PHONE
    assert page.said == []


@pytest.mark.slow
async def test_a_simulation_fits_a_phone_and_paper(page: Page, tmp_path: Path) -> None:
    """With a long path, many queues, and all of its tables open."""
    content = [*yaml.safe_load_all((EXAMPLE / "cluster.yaml").read_text())]
    for number in range(28):
        content.append(queue(f"a-team-with-a-rather-long-name-{number}", "lab"))
        for group in content[-1]["spec"]["resourceGroups"]:
            group["coveredResources"] = ["cpu"]
            group["flavors"] = [
                {"name": "default", "resources": group["flavors"][0]["resources"][:1]}
            ]
        to = {"clusterQueue": content[-1]["metadata"]["name"]}
        content.append(named("LocalQueue", f"team-{number}", to))
        content[-1]["metadata"]["namespace"] = "default"
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(yaml.safe_dump_all(content))
    rows = ["name,arrival,run_seconds,cpu,queue,priority"]
    for number in range(200):
        shape = f"{100 + number * 7919 % 5000},{(1, 1, 2, 4, 30)[number % 5]}"
        rows.append(f"j{number},{number * 15},{shape},team-{number % 28},{number % 3}")
    trace = (
        tmp_path / "a-trace-with-a-name-that-is-longer-than-a-phone-is-wide-and-has-no-space.csv"
    )
    trace.write_text("\n".join(rows) + "\n")
    strict = tmp_path / "without-preemption.yaml"
    changed = [one for one in content if one["kind"] == "ClusterQueue"]
    for one in changed:
        one["spec"]["preemption"] = {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"}
    strict.write_text(yaml.safe_dump_all(changed))
    shutil.copy(EXAMPLE / "no-reclaim.yaml", tmp_path)
    policies = ("--policy", strict, "--policy", tmp_path / "no-reclaim.yaml")
    options = ("--cluster", cluster, *policies, "--output", tmp_path / "out")
    done = kueuelib("simulate", trace, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    file = tmp_path / "out/report.html"
    await check(page, file, least=40)
    text = file.read_text()
    matrix = text.partition('class="heat"')[2].partition("</tr>")[0]
    assert matrix.count("<th") > 20, "wide enough to be cut off"
    opened = tmp_path / "opened.html"
    opened.write_text(text.replace("<details>", '<details open="">'))
    assert text.count("<details>") > 10
    await check(page, opened, least=300)
    assert page.said == []
