"""The policy that the configuration names: found, made, or refused with a reason."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import load_configuration, parse_configuration
from kueuelib.app.decision_blocks import GROUP
from kueuelib.app.decision_settings import engine_settings
from kueuelib.errors import ConfigError
from kueuelib.scheduler.policy import KUEUE
from kueuelib.scheduler.settings import Settings

EXAMPLE = Path(__file__).parents[3] / "examples" / "preemption_policies"
HEAD = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}

SOURCE = """
from kueuelib.scheduler.policy import PreemptionPolicy

class Policy(PreemptionPolicy):
    def __init__(self, name, remembers=0.0):
        self.name, self.remembers = name, remembers

def number():
    return 3

constant = 3
"""


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two installed packages: the examples as they declare themselves, and one with mistakes."""
    declared = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    offers = declared["project"]["entry-points"]["kueuelib.preemption"]
    mistakes = {
        name: f"policy_of_a_test:{attribute}"
        for name, attribute in {
            "test/policy": "Policy",
            "test/number": "number",
            "test/constant": "constant",
            "test/absent": "absent",
        }.items()
    }
    (tmp_path / "policy_of_a_test.py").write_text(SOURCE)
    for package, entries in (("examples", offers), ("mistakes", mistakes)):
        meta = tmp_path / f"{package}-1.dist-info"
        meta.mkdir()
        (meta / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        lines = [f"{name} = {value}" for name, value in entries.items()]
        (meta / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "policy_of_a_test", raising=False)


def parse(policy: str, **parameters: Any) -> Configuration:
    block = {"policy": policy, "parameters": parameters}
    return parse_configuration({**HEAD, "preemption": block}, "manager.yaml")


def test_without_the_block_kueues_own_policy_decides() -> None:
    assert engine_settings(Configuration()).preemption is KUEUE
    assert not engine_settings(Configuration()).exceeds_quota


def test_preemptors_are_decided_in_parallel_unless_that_is_off() -> None:
    assert engine_settings(Configuration()) == Settings()
    assert Settings().parallel_preemptors
    block = {"parallelPreemptors": False}
    found = parse_configuration({**HEAD, "preemption": block}, "manager.yaml")
    assert not engine_settings(found).parallel_preemptors


def test_nominal_quota_is_protected_only_if_that_is_on() -> None:
    assert not engine_settings(Configuration()).protects_nominal
    block = {"protectNominalQuota": True}
    found = parse_configuration({**HEAD, "borrowing": block}, "manager.yaml")
    assert engine_settings(found).protects_nominal


def test_quota_may_be_exceeded_until_victims_leave() -> None:
    block = {"exceedQuotaUntilVictimsLeave": True}
    found = parse_configuration({**HEAD, "preemption": block}, "manager.yaml")
    assert engine_settings(found).exceeds_quota


def test_the_example_is_loaded_with_its_parameters() -> None:
    found = engine_settings(load_configuration(EXAMPLE / "manager.yaml")).preemption
    assert found.name == "example.com/minimum-run-time"
    assert vars(found) == {"seconds": 600}


def test_other_settings_do_not_get_lost() -> None:
    block = {"policy": "example.com/preemption-budget"}
    block["parameters"] = {"preemptions": 2, "seconds": 60}  # type: ignore[assignment]
    waiting = {"timeout": "5m", "requeuingStrategy": {"timestamp": "Creation"}}
    content = {**HEAD, "preemption": block, "waitForPodsReady": waiting}
    found = engine_settings(parse_configuration(content, "manager.yaml"))
    assert found.preemption.remembers == 60
    assert found.queue_timestamp == "Creation"


def test_a_policy_that_nobody_offers_is_refused_before_anything_is_imported() -> None:
    with pytest.raises(ConfigError, match="no installed package offers 'test/other'.*test/policy"):
        parse("test/other")
    assert "policy_of_a_test" not in sys.modules


def test_parameters_without_a_policy_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"preemption\.parameters without preemption\.policy"):
        parse("", seconds=3)


@pytest.mark.parametrize(
    ("policy", "parameters", "problem"),
    [
        ("test/absent", {}, "cannot be imported: AttributeError: .*absent"),
        ("test/constant", {}, "policy_of_a_test:constant is not callable"),
        ("test/number", {}, "returns a int, not a PreemptionPolicy"),
        ("test/policy", {}, "refuses the parameters: TypeError: .*'name'"),
        ("test/policy", {"name": "test/else"}, "calls itself 'test/else'"),
        ("test/policy", {"name": "test/policy", "remembers": -1}, "remembers -1, which is not"),
        ("example.com/minimum-run-time", {"seconds": 0}, "ValueError: seconds is 0"),
    ],
)
def test_a_policy_that_cannot_work_is_refused_at_the_start(
    policy: str, parameters: dict[str, Any], problem: str
) -> None:
    configuration = parse(policy, **parameters)
    with pytest.raises(ConfigError, match=problem) as caught:
        engine_settings(configuration, "manager.yaml")
    assert f'preemption.policy "{policy}"' in str(caught.value)
