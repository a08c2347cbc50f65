"""Programs of users are tried as the bundled manager is: a controller, a check, a kind of jobs."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kueuelib.testing.hostile import ClusterState, Storm, StormFailed, create, delete, patch, trial
from kueuelib.testing.storm.campaign import CopyFailed
from kueuelib.testing.storm.draws import Draws
from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.profiles import PROFILES, weather
from kueuelib.testing.storm.run import LIMIT, WATCHES
from kueuelib.testing.storm.trial import GivenLaws

EXAMPLE = Path(__file__).parents[2] / "examples/hostile_world"


@pytest.fixture(scope="module")
def trials():
    path = Path(__file__).with_name("trials.py")
    spec = importlib.util.spec_from_file_location("storm_trials", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _pytest(*args, cwd):
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "--rootdir", str(cwd), *map(str, args)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.slow
def test_the_example_finds_the_fault_and_passes_without_it():
    done = _pytest("test_notebooks.py", cwd=EXAMPLE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


FAILING = """
import sys

sys.path.insert(0, {example!r})
from test_notebooks import TRUSTING


def test_it(storm):
    storm(TRUSTING, seeds=range(1, 31))
"""


@pytest.mark.slow
def test_a_failure_names_the_law_what_it_takes_and_the_command_that_replays_it(tmp_path):
    (tmp_path / "test_it.py").write_text(FAILING.format(example=str(EXAMPLE)))
    first = _pytest("test_it.py", cwd=tmp_path)
    assert first.returncode == 1
    assert "never-two-pods: pods default/book-" in first.stdout
    needed = first.stdout.partition("needed for it:")[2].partition("timeline:")[0]
    assert 2 <= len(needed.strip().removesuffix("E").split("\n")) <= 12
    found = re.search(r"replay: pytest (test_it.py::test_it) (--storm-replay=\d+)", first.stdout)
    assert found, first.stdout
    again = _pytest(*found.groups(), cwd=tmp_path)
    assert again.returncode == 1
    assert "1 seeds, " in again.stdout
    assert again.stdout.partition("needed for it:")[2].partition("timeline:")[0] == needed
    assert "calm: begins" in again.stdout


def test_seeds_that_are_no_range_are_refused(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(storm): pass")
    done = _pytest("test_it.py", "--storm-seeds=5:1", cwd=tmp_path)
    assert done.returncode == 1
    assert "--storm-seeds 5:1: use FIRST:LAST, for example 1:100" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CHECK", "TRAINING"])
def test_a_check_and_a_kind_of_jobs_keep_their_laws(name, trials, storm):
    result = storm(getattr(trials, name), seeds=range(1, 5))
    assert result.seeds == 4
    assert result.failed is None
    assert sum(result.faults.values()) > 40


def test_a_program_that_fails_without_any_fault_is_an_error(trials):
    with pytest.raises(CopyFailed, match="manager-1 is not ready after 120 s; manager-1: KeyError"):
        Storm()(trials.BROKEN)


def test_a_storm_is_refused_beside_a_running_event_loop(trials):
    async def inside():
        Storm()(trials.BROKEN)

    import asyncio

    with pytest.raises(RuntimeError, match="call them from a plain function"):
        asyncio.run(inside())


def test_what_a_failed_storm_says_is_also_data(trials):
    def nothing_is_written(commit, cluster):
        """Nobody writes anything."""
        if commit.actor == "user":
            yield f"{len(cluster.history)} writes"

    async def idle(endpoint):
        del endpoint
        await asyncio.Event().wait()

    import asyncio

    box = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "x"}}
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}
    tried = trial(
        idle,
        objects=[home],
        users=lambda _: [create(1.0, "configmaps", box), create(2.0, "configmaps", box)],
        at_commit=[nothing_is_written],
    )
    with pytest.raises(StormFailed) as failed:
        Storm()(tried, seeds=[7], profile="calm")
    report = failed.value.report
    assert report.seed == 7
    assert [found.law for found in report.violations] == ["nothing-is-written"]
    assert report.violations[0].object == "configmaps x/a"
    assert report.labels == ("act-1-create-a",)
    with pytest.raises(StormFailed) as again:
        Storm()(tried, seeds=[7], profile="calm")
    assert again.value.report == report


def test_acts_get_labels_that_tell_them_apart():
    box = {"apiVersion": "v1", "kind": "Box", "metadata": {"name": "a"}}

    def users(draws):
        del draws
        yield create(5.0, "boxes.example.com", box)
        yield patch(9.0, "boxes.example.com", "", "a", {"spec": {}})
        yield delete(7.0, "boxes.example.com", "", "a")

    drawn = trial(_never, users=users).scenario(Draws(1), PROFILES["swarm"])
    found = [(act.at, act.label) for act in drawn.acts]
    assert found == [(5.0, "act-0-create-a"), (7.0, "act-2-delete-a"), (9.0, "act-1-patch-a")]


def test_only_programs_for_queueing_have_a_manager_beside_them(trials):
    assert trial(_never).companions == {}
    assert set(trial(_never, kueue=True).companions) == {"kueue"}
    assert set(trials.CHECK.companions) == {"kueue"}
    assert set(trials.TRAINING.companions) == {"kueue", "vendor"}
    assert trial(_never, patience=5.0).limit == WATCHES + 5.0
    assert trial(_never, kueue=True).limit == LIMIT


@pytest.mark.parametrize("name", ["kueue", "manager-2"])
def test_names_that_mean_something_are_refused(name):
    with pytest.raises(ValueError, match="is taken; choose another name"):
        trial(_never, beside={name: _never})


async def _never(endpoint):
    raise AssertionError(endpoint)


COMMIT = Commit(1.0, 5, "user", "pods", "default", "a", None, {"metadata": {"name": "a"}})


def test_a_law_is_named_after_its_function():
    def no_pods(cluster: ClusterState):
        """There are no pods."""
        yield from (f"{pod['metadata']['name']} exists" for pod in cluster.objects("pods"))

    laws = GivenLaws(lambda _: [COMMIT.present], [no_pods], [])
    assert laws.commit(COMMIT) == []
    (found,) = laws.at_rest(lambda _: [], 9.0)
    assert (found.law, found.at, found.text) == ("no-pods", 9.0, "a exists")


def test_a_law_that_raises_is_broken():
    def no_sense(commit: Commit, cluster: ClusterState):
        yield commit.present["spec"]

    laws = GivenLaws(lambda _: [], [], [no_sense])
    (found,) = laws.commit(COMMIT)
    assert (found.law, found.text) == ("no-sense", "the law itself raised KeyError: 'spec'")


def test_faults_focus_on_what_a_program_reads():
    focus, managers, outages = set(), set(), set()
    for seed in range(200):
        draws = Draws(seed).stream("weather")
        drawn = weather(draws, PROFILES["swarm"], resources=("boxes",), replicas=1)
        focus.add(drawn.focus)
        managers.add(drawn.managers)
        outages |= {outage.resource for outage in drawn.outages}
    assert focus == {"", "boxes"}
    assert managers == {1}
    assert outages == {"boxes"}
    none = [weather(Draws(seed), PROFILES["unobserved"], resources=()) for seed in range(50)]
    assert all(drawn.outages == () and drawn.focus == "" for drawn in none)
