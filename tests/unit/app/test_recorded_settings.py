"""A recording is replayed with the settings by which it was decided."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kueuelib.api.meta import Obj
from kueuelib.app.configuration_reading import load_configuration
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.recording import recorded_configuration, recorded_settings
from kueuelib.recording.reader import FORMAT, Begin, LinePosition

HEAD = {"apiVersion": "config.kueue.x-k8s.io/v1beta1", "kind": "Configuration"}


def begin(configuration: Obj) -> Begin:
    where = LinePosition("night.gz", 1)
    return Begin(where, FORMAT, 0.0, "x", 1, "manager", "", configuration, False, "0.1.0")


@pytest.mark.parametrize(
    "block",
    [
        {"borrowing": {"protectNominalQuota": True}},
        {"fairSharing": {"enable": True}},
        {"featureGates": {"PartialAdmission": False}},
        {"featureGates": {"FlavorFungibility": False}},
        {"featureGates": {"KueueDRARejectWorkloadsWhenDRADisabled": False}},
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
