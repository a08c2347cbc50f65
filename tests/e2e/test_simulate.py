"""A simulation with the queues of a live cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from rest import KUEUE, Rest
from warm import Processes

from kueuelib.api.crd import all_crds
from kueuelib.api.yaml_text import to_yaml

EXAMPLE = Path(__file__).parents[2] / "examples/simulate"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path) as found:
        yield found


def simulate(processes: Processes, name: str, *options: str) -> dict[str, object]:
    output = processes.folder / name
    trace = str(EXAMPLE / "jobs.csv")
    process = processes.start(name, "simulate", trace, *options, "--output", str(output))
    assert process.wait(120) == 0, (processes.folder / f"{name}.log").read_text()
    result: dict[str, object] = orjson.loads((output / "result.json").read_bytes())
    return result


def test_a_live_cluster_is_simulated_as_its_objects_are(processes: Processes) -> None:
    objects = processes.folder / "objects.yaml"
    documents = [*map(to_yaml, all_crds()), (EXAMPLE / "cluster.yaml").read_text()]
    objects.write_text("---\n".join(documents))
    kubeconfig = processes.folder / "kc"
    processes.start("server", "apiserver", "--kubeconfig", str(kubeconfig), "--load", str(objects))
    processes.wait_for_file(kubeconfig, "server", 60)
    with Rest(kubeconfig) as rest:
        before = rest.get(f"{KUEUE}/clusterqueues")
        live = simulate(processes, "live", "--kubeconfig", str(kubeconfig))
        assert rest.get(f"{KUEUE}/clusterqueues") == before
    given = simulate(processes, "file", "--cluster", str(EXAMPLE / "cluster.yaml"))
    runs = [found["runs"]["baseline"] for found in (live, given)]  # type: ignore[index]
    for run in runs:
        del run["simulation"]["speed"]
    assert runs[0] == runs[1]
    assert live["notes"] == []
