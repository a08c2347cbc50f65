"""Programs that are not ours work against `kueuelib apiserver --hostile`, until it is calm."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest
import yaml
from rest import Obj, Rest, eventually

MAPS = "/api/v1/namespaces/default/configmaps"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GREETINGS = "/apis/example.com/v1/namespaces/default/greetings"
OPERATOR = Path(__file__).parents[1] / "bench/operators/greeter_kopf.py"
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
VERSION = {
    "name": "v1",
    "served": True,
    "storage": True,
    "subresources": {"status": {}},
    "schema": {"openAPIV3Schema": OPEN},
}
CRD: Obj = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "greetings.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "greetings", "kind": "Greeting"},
        "versions": [VERSION],
    },
}


@attrs.frozen
class Hostile:
    """A server: its kubeconfig, its log, and a client without faults."""

    kubeconfig: Path
    log: Path
    rest: Rest

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def is_calm(self) -> bool:
        return self.lines()[-1].endswith(" calm")


@contextmanager
def hostile(folder: Path, profile: str, seconds: int) -> Iterator[Hostile]:
    kubeconfig, log, spared = folder / "kubeconfig", folder / "log", folder / "spared"
    command = [sys.executable, "-m", "kueuelib", "apiserver", "--hostile", profile, "--seed", "5"]
    command += ["--calm-after", str(seconds), "--kubeconfig", str(kubeconfig)]
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
    try:
        eventually(kubeconfig.exists)
        config = yaml.safe_load(kubeconfig.read_text())
        config["users"] = [each for each in config["users"] if each["name"] == "spared"]
        spared.write_text(yaml.safe_dump(config))
        with Rest(spared) as rest:
            yield Hostile(kubeconfig, log, rest)
    finally:
        process.terminate()
        process.wait(60)
    assert process.returncode == 0


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the PATH")
def test_kubectl_that_is_run_again_creates_each_object_once(tmp_path: Path):
    with hostile(tmp_path, "lossy", 20) as server:
        create = ["kubectl", "--kubeconfig", str(server.kubeconfig), "create", "configmap"]
        attempts = 0
        for name in ("a", "b", "c"):
            while True:
                attempts += 1
                done = subprocess.run([*create, name], capture_output=True, text=True, check=False)
                if not done.returncode or "already exists" in done.stderr:
                    break
        eventually(server.is_calm)
        assert [each["metadata"]["name"] for each in server.rest.items(MAPS)] == ["a", "b", "c"]
        struck = [line for line in server.lines() if " kubectl: " in line]
    assert struck
    assert attempts >= 3


def test_an_operator_of_kopf_has_done_its_work_in_the_calm(tmp_path: Path):
    with hostile(tmp_path, "unobserved", 15) as server:
        server.rest.create(CRDS, CRD)
        eventually(lambda: server.rest.get(GREETINGS))
        command = [sys.executable, "-m", "kopf", "run", str(OPERATOR), "-n", "default"]
        env = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
        texts: dict[str, str] = {}
        for n in range(5):
            texts[f"g{n}"] = f"hello {n}"
            head = {"apiVersion": "example.com/v1", "kind": "Greeting"}
            obj = {**head, "metadata": {"name": f"g{n}"}, "spec": {"text": f"hello {n}"}}
            server.rest.create(GREETINGS, obj)
        with (tmp_path / "operator").open("wb") as out:
            processes = [subprocess.Popen(command, env=env, stdout=out, stderr=out)]

            def arrived() -> bool:
                if processes[-1].poll() is not None:  # as a kubelet does
                    processes.append(subprocess.Popen(command, env=env, stdout=out, stderr=out))
                found = {
                    each["metadata"]["name"]: each["data"]["text"]
                    for each in server.rest.items(MAPS)
                }
                return found == texts and server.is_calm()

            try:
                eventually(arrived, pause=0.5)
            finally:
                processes[-1].terminate()
                processes[-1].wait(60)
        assert any(" kopf: " in line for line in server.lines())
