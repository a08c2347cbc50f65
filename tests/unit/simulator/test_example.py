"""The example of docs/simulate.md, computed by hand there."""

from __future__ import annotations

import csv
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from kueuelib.cli.syntax import app

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/simulate"
PAGE = (ROOT / "docs/simulate.md").read_text()


def simulate(output: Path, *options: str) -> str:
    """What the command prints."""
    arguments = ["simulate", str(EXAMPLE / "jobs.csv"), "--cluster", str(EXAMPLE / "cluster.yaml")]
    done = CliRunner().invoke(app, [*arguments, "--output", str(output), *options])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("results")
    simulate(found, "--policy", str(EXAMPLE / "no-reclaim.yaml"))
    return found


def rows(folder: Path, run: str) -> dict[str, dict[str, str]]:
    with (folder / run / "jobs.csv").open() as file:
        return {row["job_id"]: row for row in csv.DictReader(file)}


def by_hand() -> dict[str, list[str]]:
    """The table of the page: job to start, end, wait, preemptions and work lost."""
    lines = PAGE.split("| Job | Arrives |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: [arrives, *figures] for name, arrives, *figures, _ in cells}


def test_every_job_runs_when_it_was_computed_by_hand(folder: Path) -> None:
    columns = ("submission_time", "starting_time", "finish_time", "waiting_time")
    columns += ("preemptions", "work_lost_seconds")
    found = {name: [row[c] for c in columns] for name, row in rows(folder, "baseline").items()}
    assert found == by_hand()
    assert len(found) == 12


def test_the_figures_are_those_computed_by_hand(folder: Path) -> None:
    figures = orjson.loads((folder / "result.json").read_bytes())["runs"]["baseline"]
    total = figures["total"]
    wait = {key: total["wait_seconds"][key] for key in ("p50", "p90", "p99", "max")}
    assert wait == {"p50": 0, "p90": 30, "p99": 90, "max": 90}
    assert total["wait_seconds"]["mean"] == pytest.approx(140 / 11)
    assert (total["jobs"], total["started"], total["ended"]) == (
        12,
        11,
        {"completed": 10, "failed": 1},
    )
    assert (total["preemptions"], total["work_lost_seconds"]) == (4, 65)
    assert figures["makespan_seconds"] == 415
    assert figures["simulation"]["unfinished_because"] == {"ExceedsMaxQuota": 1}
    use = figures["use"]["team-b"]["default/cpu"]
    # 4 from 50 to 150, 2 to 180, 4 to 280; then 8 for 10 and for 60 seconds, and 1 for 20
    area = 4 * 100 + 2 * 30 + 4 * 100 + 8 * 10 + 8 * 60 + 1 * 20
    assert use["mean"] == pytest.approx(area / 415)
    assert use["borrowed"] == pytest.approx(4 * 70 / 415)
    assert figures["lent"]["lab"]["default/cpu"] == pytest.approx(
        figures["use"]["team-a"]["default/cpu"]["borrowed"] + use["borrowed"]
    )


def test_a_policy_is_shown_beside_the_baseline(folder: Path, tmp_path: Path) -> None:
    runs = orjson.loads((folder / "result.json").read_bytes())["runs"]
    assert list(runs) == ["baseline", "no-reclaim"]
    assert runs["no-reclaim"]["total"]["preemptions"] == 1
    assert rows(folder, "no-reclaim")["b1"]["waiting_time"] == "50"
    assert "(-75.0%)" in simulate(tmp_path, "--policy", str(EXAMPLE / "no-reclaim.yaml"))


@pytest.mark.parametrize(
    ("start", "options"),
    [
        ("--output results\n12 jobs\n", ()),
        ("```text\n", ("--policy", str(EXAMPLE / "no-reclaim.yaml"))),
    ],
)
def test_the_page_shows_what_the_command_prints(
    tmp_path: Path, start: str, options: tuple[str, ...]
) -> None:
    shown = PAGE.split(start)[1].split("```")[0]
    printed = simulate(tmp_path / "results", *options)
    stable = [
        line for line in shown.splitlines() if "events and" not in line and "Files" not in line
    ]
    assert [line for line in stable if line.strip()]
    for line in stable:
        assert line.rstrip() in [found.rstrip() for found in printed.splitlines()], line


def test_a_question_is_answered_on_the_way(tmp_path: Path) -> None:
    found = simulate(tmp_path, "--explain", "a3@130", "--explain", "a3@5")
    assert "Workload default/a3, priority 0" in found
    assert "ClusterQueue team-a: raise nominalQuota of flavor default: cpu by 2 (to 6)" in found
    assert "default/a3 did not exist" in found
