"""A recording is replayed with the settings by which it was decided."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import yaml

from kueuelib.api.meta import Obj
from kueuelib.app.configuration import load_configuration
from kueuelib.app.part_settings import engine_settings
from kueuelib.app.recording import configuration_of, recorded_configuration, recorded_settings
from kueuelib.recording.reader import FORMAT, Begin, LinePosition
from kueuelib.scheduler.settings import DEFAULTS

HEAD = {"apiVersion": "config.kueue.x-k8s.io/v1beta1", "kind": "Configuration"}


def begin(configuration: Obj, form: int = FORMAT) -> Begin:
    where = LinePosition("night.gz", 1)
    return Begin(where, form, 0.0, "x", 1, "manager", "", configuration, False, "0.1.0")


@pytest.mark.parametrize(
    "block",
    [
        {"borrowing": {"protectNominalQuota": True}},
        {"fairSharing": {"enable": True}},
        {"featureGates": {"PartialAdmission": False}},
        {"featureGates": {"FlavorFungibility": False}},
        {"featureGates": {"PrioritySortingWithinCohort": False}},
        {"preemption": {"parallelPreemptors": False}},
        {"preemption": {"exceedQuotaUntilVictimsLeave": True}},
        {"resources": {"excludeResourcePrefixes": ["example.com/"]}},
        {"waitForPodsReady": {"enable": True, "blockAdmission": True}},
    ],
    ids=str,
)
def test_every_setting_of_decisions_is_recorded(tmp_path: Path, block: Obj) -> None:
    path = tmp_path / "manager.yaml"
    path.write_text(yaml.safe_dump({**HEAD, **block}))
    settings = engine_settings(load_configuration(path))
    assert settings != engine_settings(load_configuration(None)), "the block decides nothing"
    assert recorded_settings(begin(recorded_configuration(path))) == settings


@pytest.mark.parametrize("content", [{}, HEAD, {**HEAD, "preemption": {}}], ids=str)
def test_an_early_recording_was_decided_one_preemptor_after_the_other(content: Obj) -> None:
    assert not recorded_settings(begin(content, form=1)).parallel_preemptors
    assert recorded_settings(begin(content)).parallel_preemptors
    assert configuration_of(begin(content)) == content
    assert recorded_settings(begin(content, form=1)) == attrs.evolve(
        DEFAULTS, parallel_preemptors=False
    )
