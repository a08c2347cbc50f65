"""Prefect with a real server; a Job is simulated, and flows run in processes of a node."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("prefect_kubernetes", reason="nox -s integrations installs it")

import attrs
import httpx
from prefect.states import AwaitingRetry, Cancelling, Completed, InfrastructurePending, Running
from prefect.states import State as RunState
from team import Looks, Team

from kueuelib import Progress, State
from kueuelib.integrations.prefect import yields
from kueuelib.jobs.client.progress import EvictionRecord, Why
from kueuelib.testing.processes import free_port

RUN = Path(__file__).parent / "prefect_run.py"
WORKER = RUN.with_name("prefect_worker.py")
READY_SECONDS = 300


@pytest.fixture(scope="session")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of programs that use a Prefect server with an empty database."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    env = {
        **os.environ,
        "PREFECT_HOME": str(tmp_path_factory.mktemp("prefect")),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_API_URL": url,
    }
    command = ["-m", "prefect", "server", "start", "--port", str(port), "--no-ui"]
    with subprocess.Popen([sys.executable, *command], env=env) as process:
        try:
            deadline = time.monotonic() + READY_SECONDS
            while not answers(f"{url}/health"):
                assert time.monotonic() < deadline
                time.sleep(0.5)
            yield env
        finally:
            process.terminate()


EVICTED = EvictionRecord("Preempted", "", 0.0)
QUEUED = Progress(State.QUEUED, Why("WaitingForQuota"))


@pytest.mark.parametrize(
    ("state", "progress", "expected"),
    [
        (InfrastructurePending(), QUEUED, True),
        (InfrastructurePending(), Progress(State.ADMITTED, Why("Admitted")), True),
        (Running(), QUEUED, False),
        (Running(), attrs.evolve(QUEUED, evicted=EVICTED), True),
        (Running(), Progress(State.EVICTED, Why("Preempted"), evicted=EVICTED), False),
        (Running(), Progress(State.ADMITTED, Why("Admitted"), evicted=EVICTED), False),
        (AwaitingRetry(), QUEUED, False),
        (AwaitingRetry(), Progress(State.EVICTED, Why("Preempted"), evicted=EVICTED), True),
        (Cancelling(), attrs.evolve(QUEUED, evicted=EVICTED), False),
        (Completed(), attrs.evolve(QUEUED, evicted=EVICTED), False),
    ],
)
def test_a_run_whose_job_returns_to_its_queue_says_why(
    state: RunState, progress: Progress, expected: bool
) -> None:
    assert yields(state, progress) is expected


def answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


def test_the_state_of_a_flow_run_says_why_its_job_waits(
    team: Team, prefect: dict[str, str]
) -> None:
    env = {**prefect, "KUBECONFIG": team.kubeconfig, "TEAM": team.namespace}
    lines = list[str]()
    with team.occupied():
        process = subprocess.Popen(
            [sys.executable, str(RUN)], env=env, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        reading = threading.Thread(target=lines.extend, args=(process.stdout,))
        reading.start()
        looks = Looks.at(team, "Prefect", lambda: (lines or [""])[-1], 30)
    assert process.wait(timeout=60) == 0, lines
    reading.join()
    process.stdout.close()
    assert looks.lapses == 0, looks
    reason = "InfrastructurePending: Waiting for quota: cpu"
    assert any(line.startswith(reason) for line in lines), lines


def test_both_flows_complete_although_the_first_is_preempted(
    real_team: Team, prefect: dict[str, str]
) -> None:
    where = {"KUBECONFIG": real_team.kubeconfig, "TEAM": real_team.namespace, "RUNS": "2"}
    env = {**prefect, **where}
    lines: list[str] = []
    with subprocess.Popen(
        [sys.executable, str(WORKER)], env=env, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None

        def until(*texts: str) -> None:
            """Until each text was printed since the last call."""
            missing = set(texts)
            for line in process.stdout or ():
                lines.append(line)
                missing -= {text for text in missing if text in line}
                if not missing:
                    return
            pytest.fail("".join(lines))

        until("Running: ", "Waiting for quota: cpu on processes")
        with real_team.occupied():
            until("evicted 1 time, last: Preempted")
        lines += process.stdout
        assert process.wait(timeout=60) == 0, lines
    assert len(real_team.jobs()) == 2, lines
    for number in range(2):
        assert any(line.startswith(f"run {number} Completed: ") for line in lines), lines


def test_a_flow_run_is_canceled_while_its_job_waits(team: Team, prefect: dict[str, str]) -> None:
    where = {"KUBECONFIG": team.kubeconfig, "TEAM": team.namespace, "RUNS": "1", "CANCEL": "1"}
    with team.occupied():
        printed = subprocess.check_output(
            [sys.executable, str(WORKER)], env={**prefect, **where}, text=True, timeout=240
        )
        assert team.jobs() == []
    assert printed.splitlines()[-1].startswith("run 0 Cancelled: "), printed
