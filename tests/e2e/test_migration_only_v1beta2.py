"""From the Go manager to ours and back, where the kinds are stored and served only in v1beta2."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Self

import pytest
import yaml
from place import container
from real_plane import real_plane
from rest import Obj, Rest, eventually
from test_migration import MISSING, STILL, Load, Managers, assert_nothing_changed, refused
from test_only_v1beta2 import CRDS

from kueuelib import State, sync

SHARE = 0.1
"""How many jobs there are, as a part of those of `test_migration`."""
NEW = "kueue.x-k8s.io/v1beta2"


class OneVersion(Managers):
    """Both managers, with the kinds of releases without `v1beta1`."""

    def go_objects(self) -> list[Obj]:
        """With the conversion webhook, which it insists on when it renews certificates."""
        objects = super().go_objects()
        for obj in objects:
            if obj["kind"] == "CustomResourceDefinition":
                spec = obj["spec"]
                spec["versions"] = [each for each in spec["versions"] if each["name"] == "v1beta2"]
        return objects

    def install_ours(self, *args: str) -> None:
        super().install_ours("--without-v1beta1", *args)

    def check_versions(self) -> None:
        """No other version is served, or was ever stored."""
        for crd in self.rest.items(CRDS):
            if crd["spec"]["group"] == "kueue.x-k8s.io":
                served = [each["name"] for each in crd["spec"]["versions"] if each["served"]]
                assert served == ["v1beta2"]
                assert crd["status"]["storedVersions"] == ["v1beta2"]

    def check_commands(self, load: Load) -> None:
        """What commands say that read everything."""
        waiting = f"job-wait-{load.pending - 1}"
        assert waiting in self.run("pending", "-n", load.place.ns)
        text = self.run("apiserver", "dump")
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        found = [one for one in yaml.load_all(text, loader) if one["kind"] == "Workload"]
        assert {one["apiVersion"] for one in found} == {NEW}
        assert len(found) == len(self.rest.items(f"/apis/{NEW}/workloads"))


class Watched:
    """A job that somebody submits and watches until its end."""

    def __init__(self, kubeconfig: Path, namespace: str, queue: str, name: str) -> None:
        template = {"spec": {"restartPolicy": "Never", "containers": [container()]}}
        meta = {"name": name, "namespace": namespace}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}
        self._kubeconfig = str(kubeconfig)
        self.handle = sync.submit(
            {**job, "spec": {"template": template}}, queue=queue, kubeconfig=self._kubeconfig
        )
        self.states: list[State] = []
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self._thread.join(60)
            assert not self._thread.is_alive()

    def _follow(self) -> None:
        for progress in sync.watch(self.handle, kubeconfig=self._kubeconfig):
            if self.states[-1:] != [progress.state]:
                self.states.append(progress.state)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_nothing_restarts_with_one_version(tmp_path: Path) -> None:
    with real_plane(tmp_path) as plane, Rest(plane.kubeconfig) as rest:
        managers = OneVersion(plane, rest, tmp_path)
        managers.install_go()
        with managers.go():
            load = Load(rest, SHARE)
            place = load.place
            load.create()
            place.queue(2, "watched")
            watched = Watched(plane.kubeconfig, place.ns, "watched", "watched")
            time.sleep(STILL)
            before = load.state()
            managers.check_commands(load)
        with watched:
            eventually(lambda: State.RUNNING in watched.states)
            managers.install_ours()
            with managers.ours():
                assert_nothing_changed(load, before)
                managers.check_versions()
                managers.check_commands(load)
                load.goes_on(0)
                refused(load)
                other = Watched(plane.kubeconfig, place.ns, "watched", "other")
                with other:
                    eventually(lambda: State.RUNNING in other.states)
                    place.finish({"kind": "Job", **rest.get(f"{place.jobs}/other")})
                    eventually(lambda: State.FINISHED in other.states)
                assert other.states[-2:] == [State.RUNNING, State.FINISHED]
                time.sleep(STILL)
                before = load.state()
            managers.install_go()
            with managers.go():
                assert_nothing_changed(load, before)
                managers.check_versions()
                load.goes_on(1)
                refused(load)
                place.finish({"kind": "Job", **rest.get(f"{place.jobs}/watched")})
                eventually(lambda: State.FINISHED in watched.states)
        assert watched.states[-2:] == [State.RUNNING, State.FINISHED]
        assert State.EVICTED not in watched.states
