"""The kind on the page about custom jobs that stops in two writes."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from kueuelib.api.patch import merge_patch
from kueuelib.jobs import PodSet, PodSetInfo, Stop, StopReason, merged_all, restored_all

from .blocks import ROOT, blocks_of

TEMPLATE = {"spec": {"containers": [{"name": "c"}], "nodeSelector": {"zone": "a"}}}
ORIGINAL = PodSetInfo("main", 1, node_selector={"zone": "a"})
ADDED = PodSetInfo("main", 1, node_selector={"pool": "spot"})


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of the page, with the methods that the page leaves to the reader."""
    page = ModuleType("page")
    names = vars(page)
    monkeypatch.setitem(sys.modules, "page", page)
    for block in blocks_of(ROOT / "docs/custom-jobs.md"):
        if "class TrainingJob" in block.text or "class SlowlyStoppedJob" in block.text:
            exec(block.text, names)

    class Whole(names["SlowlyStoppedJob"]):  # type: ignore[misc]
        active = False

        def _template(self, template: Any) -> None:
            self.object = self.object.evolve(spec=self.object.spec.evolve(template=template))

        def pod_sets(self) -> tuple[PodSet, ...]:
            return (PodSet("main", 1, dict(self.object.spec.template)),)

        def run_with_podsets_info(self, infos: Any) -> None:
            (template,) = merged_all("Training", [self.object.spec.template], infos)
            self.object = self.object.evolve(
                spec=self.object.spec.evolve(suspend=False, template=template)
            )

        def restore_podsets_info(self, infos: Any) -> bool:
            before, (template,) = self.object, restored_all([self.object.spec.template], infos)
            self._template(template)
            return bool(self.object != before)

        def finished(self) -> None:
            return None

        def is_active(self) -> bool:
            return self.active

        def pods_ready(self) -> bool:
            return self.active

    return Whole


def stop(job: Any, *infos: PodSetInfo) -> Stop:
    return job.stop(infos, StopReason.WORKLOAD_EVICTED, "why", 0.0)  # type: ignore[no-any-return]


@pytest.mark.parametrize("infos", [(ORIGINAL,), ()], ids=["known", "unknown"])
def test_it_suspends_waits_for_its_pods_and_then_restores(
    kind: Any, infos: tuple[PodSetInfo, ...]
) -> None:
    meta = {"name": "t", "namespace": "ns", "annotations": {"mine": "stays"}}
    made = {"metadata": meta, "spec": {"suspend": True, "workers": 1, "template": TEMPLATE}}
    running = kind(made)
    running.run_with_podsets_info([ADDED])
    running.active = True

    first = stop(running, *infos)
    assert first.stops_now
    (write,) = first.commands
    suspended = kind(merge_patch(running.raw, write.patch))
    assert suspended.object.spec.suspend
    assert suspended.is_stopping()
    assert not suspended.is_suspended(), "the stop is not complete"

    suspended.active = True
    assert stop(suspended, *infos) == Stop()
    suspended.active = False
    last = stop(suspended, *infos)
    assert not last.stops_now
    (write,) = last.commands
    stopped = kind(merge_patch(suspended.raw, write.patch))
    assert stopped.is_suspended()
    assert stopped.raw["metadata"]["annotations"] == {"mine": "stays"}
    left = {"zone": "a"} if infos else {"zone": "a", "pool": "spot"}
    assert stopped.object.spec.template["spec"]["nodeSelector"] == left
    assert stop(stopped, *infos) == Stop()
