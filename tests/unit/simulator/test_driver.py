"""The driver: what happens to a job between its arrival and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from kueuelib.api.codec import encode
from kueuelib.api.meta import Obj
from kueuelib.cli.syntax import app
from kueuelib.errors import ConfigError
from kueuelib.simulator.cluster import cluster_of, default_cluster, overlaid
from kueuelib.simulator.driver import Driver, Timing
from kueuelib.simulator.live import Listener, Live
from kueuelib.simulator.trace import Trace, TraceJob, pods
from kueuelib.testing.builders import (
    make_check,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
)
from kueuelib.workload.life import LifeSettings, PodsReadyPolicy

ROOT = Path(__file__).parents[3]


class Diary(Listener):
    """What happened, as texts."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def _note(self, now: float, what: str, live: Live) -> None:
        self.lines.append(f"{now:g} {live.job.name} {what}")

    def reserved(self, live: Live, admit: Any, now: float) -> None:
        self._note(now, "reserved", live)

    def started(self, live: Live, now: float) -> None:
        self._note(now, "started", live)

    def released(self, live: Live, now: float) -> None:
        self._note(now, "released", live)

    def ended(self, live: Live, end: str, now: float) -> None:
        self._note(now, end, live)


def objects(cpu: int, **queue: Any) -> list[Obj]:
    found = [make_flavor("f"), make_cluster_queue("q", {"f": {"cpu": cpu}}, **queue)]
    return [*map(encode, found), encode(make_local_queue("q", "q", "default"))]


def job(
    name: str, arrival: float = 0, run_seconds: float = 10, cpu: int = 1, **more: Any
) -> TraceJob:
    count, fewest = more.pop("count", 1), more.pop("min_count", None)
    shape = pods({"cpu": cpu}, count, fewest)
    return TraceJob(name, arrival, run_seconds, (shape,), "q", **more)


def diary(
    jobs: list[TraceJob],
    around: list[Obj],
    timing: Timing | None = None,
    life: LifeSettings | None = None,
) -> list[str]:
    found = Diary()
    with Trace(jobs) as trace:
        driver = Driver(cluster_of(around), [found], timing=timing, life=life)
        driver.run(trace, trace.awaited)
    return found.lines


def test_a_job_starts_once_its_checks_are_ready() -> None:
    around = [*objects(4, checks=["budget", "image"]), encode(make_check("budget"))]
    around.append(encode(make_check("image")))
    timing = Timing(check_seconds={"budget": 5, "image": 30})
    found = diary([job("a")], around, timing)
    assert found == ["0 a reserved", "30 a started", "40 a released", "40 a completed"]


def test_a_job_that_lacks_a_check_object_waits() -> None:
    assert diary([job("a")], objects(4, checks=["budget"])) == []


def test_pods_that_are_not_ready_in_time_back_off_as_with_the_manager() -> None:
    policy = PodsReadyPolicy(timeout=20, backoff_base=60, limit=2)
    life = LifeSettings(policy)
    found = diary([job("a")], objects(4), Timing(ready_seconds=25), life)
    assert found == [
        *("0 a reserved", "0 a started", "10 a released", "10 a completed"),
    ]  # it ends before anybody misses its pods
    found = diary([job("a", run_seconds=100)], objects(4), Timing(ready_seconds=25), life)
    assert found == [
        *("0 a reserved", "0 a started", "20 a released"),
        *("80 a reserved", "80 a started", "100 a released"),
        *("220 a reserved", "220 a started", "240 a released", "240 a deactivated"),
    ]
    found = diary([job("a", run_seconds=100)], objects(4), Timing(ready_seconds=15), life)
    assert found[-1] == "100 a completed"


def test_a_job_is_over_when_its_limit_is_reached() -> None:
    found = diary([job("a", run_seconds=100, limit_seconds=30)], objects(4))
    assert found == ["0 a reserved", "0 a started", "30 a released", "30 a deactivated"]


def test_a_victim_holds_its_quota_until_it_has_stopped() -> None:
    around = objects(4, preemption={"withinClusterQueue": "LowerPriority"})
    found = diary(
        [job("low", 0, 100, 4), job("high", 50, 10, 4, priority=1)], around, Timing(stop_seconds=7)
    )
    assert found == [
        *("0 low reserved", "0 low started", "57 low released"),
        *("57 high reserved", "57 high started", "67 high released", "67 high completed"),
        *("67 low reserved", "67 low started", "167 low released", "167 low completed"),
    ]


def test_a_job_runs_on_from_its_last_checkpoint() -> None:
    around = objects(4, preemption={"withinClusterQueue": "LowerPriority"})
    low = job("low", 0, 100, 4, checkpoint_seconds=20)
    found = diary([low, job("high", 50, 10, 4, priority=1)], around)
    assert found[-1] == "120 low completed"  # 40 of the 50 seconds were saved


def test_with_half_of_its_pods_a_job_takes_twice_as_long() -> None:
    found = diary([job("a", 0, 10, 1, count=8, min_count=2)], objects(4))
    assert found[-1] == "20 a completed"


def test_a_job_follows_another_one_after_the_think_time() -> None:
    jobs = [
        job("a", 0, 10),
        job("b", 1, 5, after="a", think_seconds=3),
        job("c", 2, 5, after="b", think_seconds=1),
        job("d", 90, 5, after="a", think_seconds=3),
        job("e", 95, 5, after="nobody"),
    ]
    starts = [line for line in diary(jobs, objects(4)) if line.endswith("started")]
    assert starts == ["0 a started", "13 b started", "19 c started", "90 d started", "95 e started"]


def test_two_jobs_of_one_name_at_the_same_time_are_an_error() -> None:
    with pytest.raises(ConfigError, match="default/a: two jobs have this name"):
        diary([job("a"), job("a", 5)], objects(4))
    assert diary([job("a"), job("a", 10)], objects(4))[-1] == "20 a completed"


def test_time_passes_without_cost() -> None:
    found = Diary()
    driver = Driver(cluster_of(objects(4)), [found])
    driver.run([job("a"), job("b", 1e9)])
    assert found.lines[-1] == "1e+09 b completed"
    assert driver.events == 4
    assert driver.cycles <= 4


def test_a_finished_job_leaves_nothing_behind() -> None:
    driver = Driver(cluster_of(objects(4)))
    driver.run(job(f"a{number}", number, 1) for number in range(300))
    assert driver.live == {}
    facts = driver.engine._facts  # what the engine keeps is not to be seen from outside
    assert len(facts.workloads._workloads) == len(facts.workloads._outside) == 0


def test_jobs_that_do_not_fit_into_memory_are_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kueuelib.simulator.trace.CHUNK", 7)
    arrivals = [(number * 37) % 50 for number in range(100)]
    jobs = [job(f"a{number}", arrival) for number, arrival in enumerate(arrivals)]
    with Trace(jobs) as trace:
        first, second = list(trace), list(trace)
    assert first == second == sorted(jobs, key=lambda job: job.arrival)


def test_a_default_cluster_owns_the_machines_of_the_trace() -> None:
    jobs = [TraceJob(f"a{n}", n, 60, (pods({"cpu": 2}, 3),), f"q{n % 3}") for n in range(100)]
    with Trace(jobs) as trace:
        known = default_cluster(trace, {"cpu": 64})
        assert sum(quotas(known).values()) == 64
        guessed = sum(quotas(default_cluster(trace, {})).values())
    assert guessed == -(-100 * 60 * 6 / 99 / 0.8 // 1)
    driver = Driver(cluster_of(known))
    driver.run(jobs)
    assert driver.live == {}


def quotas(found: tuple[Obj, ...]) -> dict[str, int]:
    return {
        obj["metadata"]["name"]: int(
            obj["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"]
        )
        for obj in found
        if obj["kind"] == "ClusterQueue"
    }


def test_an_object_of_a_policy_replaces_the_one_of_its_name() -> None:
    policy = [encode(make_cluster_queue("q", {"f": {"cpu": 9}})), encode(make_flavor("g"))]
    found = cluster_of(overlaid(objects(4), policy))
    assert found.cluster_queues["q"] == policy[0]
    assert set(found.world.flavors) == {"f", "g"}
    assert len(found.local_queues) == 1


# --- the command

CSV = "name,arrival,run_seconds,cpu,user\na,0,10,1,Ann B.\nb,5,20,1,bo\nc,6,5,x,bo\n"


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["simulate", *arguments], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.return_value, done.output


def test_the_first_run_needs_no_cluster(tmp_path: Path) -> None:
    trace = tmp_path / "a.csv"
    trace.write_text(CSV)
    code, text = run(str(trace), "--queue-by", "user", "--output", str(tmp_path / "out"))
    assert code == 0
    assert f"{trace}:4: cpu: 'x' is not a Kubernetes quantity" in text
    result = orjson.loads((tmp_path / "out/result.json").read_bytes())
    assert result["trace"]["bad_lines"] == 1
    assert list(result["runs"]["baseline"]["cluster_queues"]) == ["ann-b", "bo"]
    with pytest.raises(ConfigError, match=r"a\.csv:4"):
        run(str(trace), "--strict", "--output", str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--check", "x"], "--check x: "),
        (["--explain", "a"], "--explain a: does not name a job and a time"),
        (["--scale", "2"], "a trace of format csv is recorded"),
        (["--cluster", "nowhere.yaml"], "nowhere.yaml: No such file"),
        (["--policy", "jobs.yaml"], "Job x: cannot replace an object"),
        (["--policy", "bad.yaml"], "ClusterQueue q: "),
    ],
)
def test_what_cannot_work_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(CSV)
    Path("jobs.yaml").write_text("{apiVersion: batch/v1, kind: Job, metadata: {name: x}}")
    queue = "{kind: ClusterQueue, metadata: {name: q}, spec: {resourceGroups: 5}}"
    Path("bad.yaml").write_text(queue)
    with pytest.raises(ConfigError) as caught:
        run("a.csv", "--output", "out", *arguments)
    assert problem in str(caught.value)


def test_a_policy_may_bring_a_configuration(tmp_path: Path) -> None:
    trace, policy = tmp_path / "a.csv", tmp_path / "fair.yaml"
    trace.write_text(CSV)
    policy.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
        "fairSharing: {enable: true}\n"
    )
    code, text = run(str(trace), "--policy", str(policy), "--output", str(tmp_path / "out"))
    assert code == 0
    assert "fair" in text


def test_a_snapshot_of_a_cluster_goes_on_from_where_it_was(tmp_path: Path) -> None:
    condition = "message: '', lastTransitionTime: '1970-01-01T00:01:00Z'"
    snapshot = tmp_path / "dump.yaml"
    meta = "annotations: {kueuelib.dev/run-seconds: '100'}"
    spec = (
        "queueName: q, podSets: [{name: main, count: 1, template: {spec: {containers: "
        "[{name: c, resources: {requests: {cpu: 4}}}]}}}]"
    )
    head = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload\n"
    created = "creationTimestamp: 1970-01-01T00:01:30Z"
    texts = [
        (
            f"{head}metadata: {{name: runs, {meta}}}\nspec: {{{spec}}}\nstatus:\n"
            "  admission: {clusterQueue: q, podSetAssignments: [{name: main, count: 1, "
            "flavors: {cpu: f}, resourceUsage: {cpu: 4}}]}\n  conditions:\n"
            f"  - {{type: QuotaReserved, status: 'True', reason: QuotaReserved, {condition}}}\n"
            f"  - {{type: Admitted, status: 'True', reason: Admitted, {condition}}}\n"
        ),
        f"{head}metadata: {{name: waits, {created}, {meta}}}\nspec: {{{spec}}}\n",
        *(orjson.dumps(obj).decode() for obj in objects(4)),
    ]
    snapshot.write_text("\n---\n".join(texts))
    run(str(snapshot), "--output", str(tmp_path / "out"))
    rows = (tmp_path / "out/baseline/jobs.csv").read_text().splitlines()[1:]
    found = [[row.split(",")[column] for column in (0, 3, 10)] for row in rows]
    assert found == [["runs", "90", "160"], ["waits", "90", "260"]]
    figures = orjson.loads((tmp_path / "out/result.json").read_bytes())["runs"]["baseline"]
    assert figures["total"]["started"] == 1
    assert figures["total"]["wait_seconds"]["max"] == 70


LOAD = """\
seed: 3
days: 1
jobs: 200
queues: {a: 1, b: 1, c: 1}
shapes:
- {cpu: 1, runSeconds: {median: 600, sigma: 1}}
- {cpu: 8, priority: 5, pods: 2, minPods: 1, runSeconds: {median: 900, sigma: 1}}
"""


def test_the_decisions_are_the_same_under_every_hash_seed(tmp_path: Path) -> None:
    load = tmp_path / "synthetic.yaml"
    load.write_text(LOAD)
    found = set()
    for seed in ("1", "2"):
        out = tmp_path / seed
        arguments = ["simulate", str(load), "--output", str(out)]
        subprocess.run(
            [sys.executable, "-m", "kueuelib", *arguments],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        )
        tables = [(out / "baseline" / name).read_bytes() for name in ("jobs.csv", "queues.csv")]
        result = orjson.loads((out / "result.json").read_bytes())["runs"]["baseline"]
        del result["simulation"]["speed"]
        found.add((*tables, orjson.dumps(result)))
    assert len(found) == 1


def test_ctrl_c_gives_the_result_so_far(tmp_path: Path) -> None:
    load = tmp_path / "synthetic.yaml"
    load.write_text(LOAD.replace("jobs: 200", "jobs: 8000"))
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "kueuelib", "simulate", str(load), "--output", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    rows = out / "baseline/queues.csv"
    while process.poll() is None and not (rows.exists() and rows.stat().st_size > 1000):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    text, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert b"interrupted" in told
    assert b"jobs not submitted" in text
    result = orjson.loads((out / "result.json").read_bytes())["runs"]["baseline"]
    assert result["simulation"]["interrupted"]
    assert result["total"]["jobs"] > 0
