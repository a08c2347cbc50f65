"""What happens to a cluster in the course of time; all times are computed by hand."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from click.testing import CliRunner

from kueuelib.api.codec import encode
from kueuelib.api.meta import Obj
from kueuelib.cli.syntax import app
from kueuelib.errors import ConfigError
from kueuelib.simulator.changes import AT_SECONDS, LOST_AT_SECONDS, course
from kueuelib.simulator.driver import Driver, Timing
from kueuelib.simulator.live import Listener, Live
from kueuelib.simulator.meter import Meter
from kueuelib.simulator.trace import Trace, TraceJob, pods
from kueuelib.testing.builders import make_cluster_queue, make_flavor, make_local_queue

EXAMPLE = Path(__file__).parents[3] / "examples/simulate"


class Diary(Listener):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def started(self, live: Live, now: float) -> None:
        (flavor,) = {pair.flavor for pair in live.usage}
        self.lines.append(f"{now:g} {live.job.name} starts on {flavor}")

    def released(self, live: Live, now: float) -> None:
        self.lines.append(f"{now:g} {live.job.name} leaves")


def timed(obj: Obj, at: float | str, name: str = AT_SECONDS) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "annotations": {name: str(at)}}}


def queue(cpu: dict[str, int], **spec: Any) -> Obj:
    quota = {flavor: {"cpu": amount} for flavor, amount in cpu.items()}
    return encode(make_cluster_queue("q", quota, **spec))


def objects(**cpu: int) -> list[Obj]:
    flavors = [encode(make_flavor(name)) for name in cpu]
    return [*flavors, queue(cpu), encode(make_local_queue("q", "q", "default"))]


def job(name: str, arrival: float, run_seconds: float, cpu: int) -> TraceJob:
    return TraceJob(name, arrival, run_seconds, (pods({"cpu": cpu}),), "q")


def played(
    jobs: list[TraceJob], around: list[Obj], timing: Timing | None = None
) -> tuple[Any, Any]:
    cluster, changes = course(around)
    found, meter = Diary(), Meter(cluster)
    with Trace(jobs) as trace:
        driver = Driver(cluster, [meter, found], changes=changes, timing=timing)
        driver.run(trace, trace.awaited)
    return found.lines, meter.figures()


def test_quota_grows_and_shrinks() -> None:
    jobs = [job(name, 0, 30, 2) for name in ("a", "b", "c", "d")]
    around = [*objects(f=2), timed(queue({"f": 6}), 10), timed(queue({"f": 2}), 20)]
    lines, figures = played(jobs, around)
    starts = [line for line in lines if "starts" in line]
    assert starts == [
        f"{at} {name} starts on f" for at, name in [(0, "a"), (10, "b"), (10, "c"), (40, "d")]
    ]
    use = figures["use"]["q"]["f/cpu"]
    # 70 s: 2 nominal but for 10 seconds with 6; 2 used to 10, 6 to 30, 4 to 40, then 2
    assert use["nominal"] == pytest.approx((60 * 2 + 10 * 6) / 70)
    assert use["mean"] == pytest.approx((2 * 10 + 6 * 20 + 4 * 10 + 2 * 30) / 70)
    assert use["borrowed"] == pytest.approx((4 * 10 + 2 * 10) / 70)
    assert use["of_nominal"] == pytest.approx(240 / 180)


@pytest.mark.parametrize(
    ("policy", "ends"), [("Hold", ["30 a leaves"]), ("HoldAndDrain", ["10 a leaves"])]
)
def test_a_queue_is_stopped_and_goes_on(policy: str, ends: list[str]) -> None:
    stopped = timed(queue({"f": 2}, stopPolicy=policy), 10)
    around = [*objects(f=2), stopped, timed(queue({"f": 2}), 100)]
    lines, _ = played([job("a", 0, 30, 2), job("b", 50, 5, 2)], around)
    assert lines[:2] == ["0 a starts on f", *ends]
    assert lines[2].startswith("100 ")
    assert len([line for line in lines if "starts" in line]) == (2 if policy == "Hold" else 3)


def test_jobs_leave_a_lost_flavor_and_take_another_one_until_it_is_back() -> None:
    back = timed(encode(make_flavor("one")), 50)
    lost = timed(encode(make_flavor("one")), 10, LOST_AT_SECONDS)
    jobs = [job("a", 0, 30, 2), job("b", 0, 100, 2), job("c", 20, 5, 2)]
    lines, figures = played(jobs, [*objects(one=2, two=2), lost, back])
    assert lines == [
        "0 a starts on one",
        "0 b starts on two",
        "10 a leaves",
        "50 a starts on one",
        "80 a leaves",
        "80 c starts on one",
        "85 c leaves",
        "100 b leaves",
    ]
    assert figures["total"]["work_lost_seconds"] == 10
    assert figures["total"]["preemptions"] == 0
    assert figures["use"]["q"]["one/cpu"]["nominal"] == pytest.approx(2 * 60 / 100)


def test_jobs_leave_a_lost_flavor_after_the_time_that_stopping_takes() -> None:
    lost = timed(encode(make_flavor("one")), 10, LOST_AT_SECONDS)
    lines, _ = played([job("a", 0, 30, 2)], [*objects(one=2, two=2), lost], Timing(5))
    assert lines == ["0 a starts on one", "15 a leaves", "15 a starts on two", "45 a leaves"]


def test_a_change_before_the_first_job_holds_from_the_beginning() -> None:
    around = [*objects(f=2), timed(queue({"f": 4}), "1970-01-01T00:00:05")]
    lines, figures = played([job("a", 1000, 10, 4)], around)
    assert lines == ["1000 a starts on f", "1010 a leaves"]
    assert figures["use"]["q"]["f/cpu"]["nominal"] == 4


def test_what_happens_after_the_last_job_does_not_take_time() -> None:
    around = [*objects(f=2), timed(queue({"f": 4}), 1e9)]
    _, figures = played([job("a", 0, 10, 2)], around)
    assert figures["use"]["q"]["f/cpu"]["of_nominal"] == 1


def test_jobs_that_wait_for_a_change_are_not_given_up() -> None:
    around = [*objects(f=2), timed(queue({"f": 4}), 1e6)]
    lines, _ = played([job("a", 0, 10, 4)], around)
    assert lines == ["1e+06 a starts on f", "1.00001e+06 a leaves"]


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        (timed(queue({"f": 1}), "soon"), "'soon' is neither a number nor a date and time"),
        (timed(queue({"f": 1}), -5), "'-5' is negative"),
        (timed(queue({"f": 1}), 5, LOST_AT_SECONDS), "is for ResourceFlavors only"),
        (
            timed(encode(make_local_queue("x", "q", "default")), 5),
            "does not exist at the beginning",
        ),
        (timed(encode(make_local_queue("q", "x", "default")), 5), "moves to another ClusterQueue"),
    ],
)
def test_a_change_that_cannot_be_is_refused(obj: Obj, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        course([*objects(f=2), obj])


def test_a_policy_brings_changes(tmp_path: Path) -> None:
    """Twice the quota of team-a from 60 to 120: a2 is back at once, and a3 follows on a1."""
    (team,) = [
        obj
        for obj in yaml.safe_load_all((EXAMPLE / "cluster.yaml").read_text())
        if (obj["kind"], obj["metadata"]["name"]) == ("ClusterQueue", "team-a")
    ]
    more = orjson.loads(orjson.dumps(team))
    more["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = 8
    policy = tmp_path / "burst.yaml"
    policy.write_text(yaml.safe_dump_all([timed(more, 60), timed(team, 120)]))
    arguments = [str(EXAMPLE / "jobs.csv"), "--cluster", str(EXAMPLE / "cluster.yaml")]
    arguments += ["--policy", str(policy), "--output", str(tmp_path)]
    done = CliRunner().invoke(app, ["simulate", *arguments])
    assert done.exit_code == 0, done.output
    assert "Note" not in done.output
    runs = orjson.loads((tmp_path / "result.json").read_bytes())["runs"]
    assert runs["baseline"]["changes"] == []
    assert runs["burst"]["changes"] == [
        {"at": 60, "what": ["ClusterQueue team-a changes"]},
        {"at": 120, "what": ["ClusterQueue team-a changes"]},
    ]
    with (tmp_path / "burst/jobs.csv").open() as file:
        starts = {row["job_id"]: row["starting_time"] for row in csv.DictReader(file)}
    assert (starts["a3"], starts["b1"]) == ("100", "50")
    assert "burst: at 1m ClusterQueue team-a changes" in (tmp_path / "report.html").read_text()


def test_the_page_shows_a_policy_that_works(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/simulate.md").read_text()
    (shown,) = [block for block in page.split("```") if "stopPolicy: HoldAndDrain" in block]
    policy = tmp_path / "stop.yaml"
    policy.write_text(shown.removeprefix("yaml\n"))
    arguments = [str(EXAMPLE / "jobs.csv"), "--cluster", str(EXAMPLE / "cluster.yaml")]
    arguments += ["--policy", str(policy), "--output", str(tmp_path)]
    done = CliRunner().invoke(app, ["simulate", *arguments])
    assert done.exit_code == 0, done.output
    with (tmp_path / "stop/jobs.csv").open() as file:
        rows = {row["job_id"]: row for row in csv.DictReader(file)}
    # b1 ends at 150, when the queue is stopped; b2 and b3 wait until it goes on
    assert {rows[name]["starting_time"] for name in ("b2", "b3")} <= {"250", "280"}
    assert rows["b1"]["finish_time"] == "150"
