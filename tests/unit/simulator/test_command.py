"""`kueuelib simulate`: what it refuses, and what it says about what it was given."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from kueuelib.cli.simulate import command
from kueuelib.cli.syntax import app
from kueuelib.errors import ConfigError
from kueuelib.simulator.readers.formats import FORMATS

HEAD = "name,arrival,run_seconds,cpu,queue\n"
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return written


def simulate(output: Path, *arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, arguments), "--output", str(output)])


@pytest.mark.parametrize("option", ["--stop-seconds", "--ready-seconds", "--sample-seconds"])
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_number_that_is_not_finite_is_refused(tmp_path: Path, option: str, number: str) -> None:
    done = simulate(tmp_path, "trace.csv", option, number)
    assert done.exit_code == 2
    assert f"'{number}' is not a finite number" in done.output


def test_time_ends_before_the_calendar_does(write: Write, tmp_path: Path) -> None:
    trace = write("a.csv", HEAD + "a,0,1e15,1,q\nb,10,5,1,q\n")
    assert simulate(tmp_path, trace).exit_code == 0
    found = orjson.loads((tmp_path / "result.json").read_bytes())["runs"]["baseline"]
    assert found["simulation"]["unfinished_because"] == {"Running": 1}
    assert found["total"]["ended"] == {"completed": 1}


def test_derived_queues_are_written_so_that_a_policy_can_change_them(
    write: Write, tmp_path: Path
) -> None:
    trace = write("a.csv", HEAD + "a,0,10,3,q\nb,1,5,1,r\nc,2,5,4,r\n")
    assert "Queues derived from the trace" in simulate(tmp_path / "x", trace).output
    derived = tmp_path / "x/baseline/cluster.yaml"
    assert simulate(tmp_path / "y", trace, "--cluster", derived).exit_code == 0
    decided = [
        orjson.loads((tmp_path / name / "result.json").read_bytes())["runs"]["baseline"]
        for name in ("x", "y")
    ]
    assert decided[0]["decisions"] == decided[1]["decisions"]
    assert not (tmp_path / "y/baseline/cluster.yaml").exists()


def test_derived_queues_are_named_by_the_run_that_derived_them(
    write: Write, tmp_path: Path
) -> None:
    trace = write("a.csv", HEAD + "a,0,10,3,team-a\n")
    mine = write("x/baseline/cluster.yaml", (EXAMPLE / "cluster.yaml").read_text())
    said = simulate(tmp_path / "x", trace, "--cluster", mine)
    assert said.exit_code == 0
    assert "Queues derived" not in said.output
    assert mine.exists()
    said = simulate(tmp_path / "x", trace)
    assert f"Queues derived from the trace: {mine}\n" in said.output


@pytest.mark.parametrize(
    ("option", "name", "linked"),
    [
        ("--cluster", "baseline/cluster.yaml", False),
        ("--cluster", "baseline/cluster.yaml", True),
        ("--policy", "baseline/cluster.yaml", False),
        ("", "baseline/jobs.csv", False),
    ],
)
def test_a_file_that_was_given_is_not_removed(
    write: Write, tmp_path: Path, option: str, name: str, linked: bool
) -> None:
    trace, output = write("a.csv", HEAD + "a,0,10,3,q\n"), tmp_path / "x"
    assert simulate(output, trace).exit_code == 0
    given = output / name
    if name.endswith(".csv"):
        given.write_text(trace.read_text())
    if linked:
        given = tmp_path / "link.yaml"
        given.symlink_to(output / name)
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    done = simulate(output, *((trace, option) if option else ()), given)
    assert isinstance(done.exception, ConfigError)
    problem = "would be removed with the results of the earlier simulation"
    assert str(done.exception).startswith(f"{given}: {problem}; copy the file")
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == before


def test_derived_queues_of_an_earlier_simulation_are_removed(write: Write, tmp_path: Path) -> None:
    trace, output = write("a.csv", HEAD + "a,0,10,3,q\n"), tmp_path / "x"
    assert simulate(output, trace, "--policy", write("other.yaml", QUEUE)).exit_code == 0
    mine = write("x/other/cluster.yaml", "kept")
    copy = write("copy.yaml", (output / "baseline/cluster.yaml").read_text())
    assert simulate(output, trace, "--cluster", copy).exit_code == 0
    assert not (output / "baseline/cluster.yaml").exists()
    assert mine.read_text() == "kept"


def test_the_first_job_that_waits_for_ever_says_why(write: Write, tmp_path: Path) -> None:
    trace = write("a.csv", HEAD + "a,0,10,3,team-a\nb,1,5,3,team-a\n")
    queues = (EXAMPLE / "cluster.yaml").read_text().replace("namespaceSelector: {}", "")
    said = simulate(tmp_path / "x", trace, "--cluster", write("queues.yaml", queues)).output
    assert "2 jobs did not end: 2 Misconfigured" in said
    assert "  default/a: workload namespace doesn't match ClusterQueue selector\n" in said
    assert "default/b:" not in said


def test_numbers_of_jobs_in_several_files_do_not_collide(write: Write, tmp_path: Path) -> None:
    line = "1 {} 0 10 1 -1 -1 1 10 -1 1 1 1 -1 1 -1 -1 -1\n"
    after = "2 {} 0 10 1 -1 -1 1 10 -1 1 1 1 -1 1 -1 1 5\n"
    jobs = line + after
    first = write("may.swf", jobs.format(0, 1))
    second = write("more/may.swf", jobs.format(100, 101))
    nameless = write("x.csv", "name,arrival,run_seconds,cpu,after\n,200,1,1,\nb,201,1,1,\n")
    done = simulate(tmp_path, first, second, nameless)
    assert done.exit_code == 0
    assert "Bad lines" not in done.output
    with (tmp_path / "baseline/jobs.csv").open() as file:
        starts = {row["job_id"]: row["submission_time"] for row in csv.DictReader(file)}
    assert starts == {
        "may-1": "0",
        "may-2": "15",
        "may-2-1": "100",
        "may-2-2": "115",
        "x-2": "200",
        "b": "201",
    }


EXAMPLE = Path(__file__).parents[3] / "examples/simulate"
QUEUE = (EXAMPLE / "no-reclaim.yaml").read_text()


@pytest.mark.parametrize("option", ["--cluster", "--policy"])
@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("Never", "Nver", 'spec.preemption.reclaimWithinCohort: Unsupported value: "Nver"'),
        ("reclaimWithinCohort:", "reclaimWithinCohorts:", "did you mean reclaimWithinCohort?"),
        (", nominalQuota: 4", "", "resources[0].nominalQuota: Required value"),
        ("nominalQuota: 4", "nominalQuota: -4", "resources[0].nominalQuota: Invalid value"),
        ("cohortName", "fairSharing: {weight: -2}\n  cohortName", "spec.fairSharing.weight"),
        (
            "cohortName",
            "admissionScope: {admissionMode: Usagebased}\n  cohortName",
            "spec.admissionScope.admissionMode",
        ),
        ("v1beta2", "v2", "apiVersion"),
    ],
)
def test_an_object_that_a_cluster_would_refuse_is_refused(
    write: Write, tmp_path: Path, option: str, old: str, new: str, problem: str
) -> None:
    assert old in QUEUE
    wrong = write("wrong.yaml", QUEUE.replace(old, new))
    done = simulate(tmp_path, EXAMPLE / "jobs.csv", option, wrong)
    assert isinstance(done.exception, ConfigError)
    assert f"{wrong}: ClusterQueue team-b" in str(done.exception)
    assert problem in str(done.exception)


def test_what_a_policy_adds_is_said(write: Write, tmp_path: Path) -> None:
    policy = write("more.yaml", QUEUE.replace("name: team-b}", "name: team-b2}"))
    cluster = EXAMPLE / "cluster.yaml"
    done = simulate(tmp_path, EXAMPLE / "jobs.csv", "--cluster", cluster, "--policy", policy)
    assert f"Note: {policy} adds ClusterQueue team-b2\n" in done.output
    notes = orjson.loads((tmp_path / "result.json").read_bytes())["notes"]
    assert notes == [f"{policy} adds ClusterQueue team-b2"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--policy", "EMPTY"), "empty.yaml: holds no object"),
        (("--check", "foo=3"), "--check foo: there is no such AdmissionCheck"),
        (
            ("--kubeconfig", "EMPTY", "--cluster", "EMPTY"),
            "--kubeconfig: cannot be combined with --cluster",
        ),
        (("--explain", "nope@130"), "--explain default/nope: is not a job of the trace"),
    ],
)
def test_an_option_about_nothing_is_refused(
    write: Write, tmp_path: Path, options: tuple[str, str], problem: str
) -> None:
    empty = str(write("empty.yaml", "# nothing\n"))
    given = [option.replace("EMPTY", empty) for option in options]
    done = simulate(tmp_path, EXAMPLE / "jobs.csv", *given)
    assert isinstance(done.exception, ConfigError)
    assert problem in str(done.exception)
    assert not (tmp_path / "baseline").exists()


def test_what_an_earlier_simulation_wrote_is_removed_and_nothing_else(
    write: Write, tmp_path: Path
) -> None:
    output, given = tmp_path / "results", [EXAMPLE / "jobs.csv", "--cluster"]
    given.append(EXAMPLE / "cluster.yaml")
    policies = [EXAMPLE / "no-reclaim.yaml", write("other.yaml", QUEUE), write("old.yaml", QUEUE)]
    options = [part for policy in policies for part in ("--policy", policy)]
    assert simulate(output, *given, *options).exit_code == 0
    write("results/other/mine.txt", "kept")
    write("results/notes/jobs.csv", "kept")
    assert simulate(output, *given, "--policy", policies[0]).exit_code == 0
    files = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    tables = ("jobs.csv", "queues.csv")
    runs = {f"{run}/{name}" for run in ("baseline", "no-reclaim") for name in tables}
    assert files == {"result.json", "report.html", "other/mine.txt", "notes/jobs.csv", *runs}
    assert not (output / "old").exists()


@pytest.mark.parametrize("text", ['{"runs": {"../mine": {}}}', "[]", "no JSON"])
def test_a_result_of_somebody_else_is_not_overwritten(
    write: Write, tmp_path: Path, text: str
) -> None:
    theirs = write("results/result.json", text)
    done = simulate(theirs.parent, EXAMPLE / "jobs.csv")
    assert "is not from a simulation" in str(done.exception)
    assert theirs.read_text() == text


def test_a_run_outside_of_the_folder_is_not_removed(write: Write, tmp_path: Path) -> None:
    mine = [write("mine/jobs.csv", "kept"), write("queues.csv", "kept")]
    theirs = write("results/result.json", '{"format": 1, "runs": {"../mine": {}, "..": {}}}')
    assert simulate(theirs.parent, EXAMPLE / "jobs.csv").exit_code == 0
    assert [path.read_text() for path in mine] == ["kept", "kept"]


def test_bad_lines_that_are_not_shown_are_counted(write: Write, tmp_path: Path) -> None:
    trace = write("a.csv", HEAD + "a,0,1,1,q\n" + "b,x,1,1,q\n" * 14)
    done = simulate(tmp_path, trace)
    assert "Bad lines, skipped: 14\n" in done.output
    assert "\n  and 4 more\n" in done.output
    found = orjson.loads((tmp_path / "result.json").read_bytes())["trace"]
    assert (found["bad_lines"], len(found["bad_lines_shown"])) == (14, 10)


def test_runs_that_an_interrupt_kept_from_starting_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "_on_interrupt", lambda stop: stop())
    given = [EXAMPLE / "jobs.csv", "--cluster", EXAMPLE / "cluster.yaml"]
    done = simulate(tmp_path, *given, "--policy", EXAMPLE / "no-reclaim.yaml")
    assert "Never started: no-reclaim\n" in done.output
    result = orjson.loads((tmp_path / "result.json").read_bytes())
    assert (result["not_started"], list(result["runs"])) == (["no-reclaim"], ["baseline"])


def test_the_formats_of_the_readers_are_those_of_the_option(write: Write, tmp_path: Path) -> None:
    assert f"[{'|'.join(FORMATS)}]" in "".join(simulate(tmp_path, "--help").output.split())
    done = simulate(tmp_path, "x.csv", "--format", "xml")
    assert done.exit_code == 2
    assert "'xml' is not one of 'csv'" in done.output


def test_a_cluster_that_is_not_there_is_called_a_file(tmp_path: Path) -> None:
    done = simulate(tmp_path, EXAMPLE / "jobs.csv", "--cluster", tmp_path / "missing.yaml")
    assert "missing.yaml: No such file or directory; give a file that" in str(done.exception)
