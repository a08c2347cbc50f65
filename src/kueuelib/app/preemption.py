"""The block `preemption` of the configuration: a policy of an installed package, and two rules.

A package offers a policy as an entry point of the group `kueuelib.preemption`. The name of the
entry point is the name of the policy; its value is called with the parameters of the
configuration and returns the policy:

    [project.entry-points."kueuelib.preemption"]
    "example.com/minimum-run-time" = "preemption_policies:MinimumRunTime"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from kueuelib.app.refusals import Refusal, refuse_any
from kueuelib.errors import ConfigError
from kueuelib.scheduler.policy import KUEUE, PreemptionPolicy

GROUP = "kueuelib.preemption"


@attrs.frozen
class Preemption:
    """The preemption policy, and what holds until victims have left their room.

    Attributes:
        policy: the name of an installed one; empty for Kueue's own.
        parameters: its keyword arguments.
        parallel_preemptors: whether the next Workloads of a queue choose victims while a preemptor
            waits for its own.
        exceed_quota_until_victims_leave: whether others are admitted into that room, as by the Go
            manager.
    """

    policy: str = ""
    parameters: Mapping[str, Any] = attrs.field(factory=dict)
    parallel_preemptors: bool = True
    exceed_quota_until_victims_leave: bool = False


def check_preemption(preemption: Preemption) -> Iterator[Refusal]:
    """Refuses a policy that no package offers; nothing is imported."""
    if not preemption.policy:
        if preemption.parameters:
            yield Refusal("preemption.parameters without preemption.policy", "name the policy")
        return
    offered = sorted({entry.name for entry in _entries()})
    if preemption.policy not in offered:
        known = f"use one of {', '.join(offered)}" if offered else f"offer one as {GROUP}"
        yield Refusal(
            f"preemption.policy: no installed package offers {preemption.policy!r}",
            f"install its package, or {known}",
        )


def load_policy(preemption: Preemption, source: str) -> PreemptionPolicy:
    """The policy that the configuration names, ready for use.

    Raises:
        ConfigError: its package cannot be imported, the parameters do not suit it, or the package's
            object is not a policy. The message names the policy and the fix.
    """
    if not preemption.policy:
        return KUEUE
    from kueuelib.runtime.importing import loaded

    refuse_any(source, check_preemption(preemption))
    subject = f'{source}: preemption.policy "{preemption.policy}"'
    entries = {entry.value: entry for entry in _entries() if entry.name == preemption.policy}
    if len(entries) > 1:
        raise ConfigError(
            subject, f"is offered more than once: {', '.join(sorted(entries))}", "uninstall one"
        )
    ((value, entry),) = entries.items()
    make = loaded(f"{subject}, {value}", entry.load, "repair or uninstall its package")
    if not callable(make):
        raise ConfigError(
            subject, f"{value} is not callable", "name a class or a function in the entry point"
        )
    try:
        policy = make(**preemption.parameters)
    except Exception as error:
        raise ConfigError(
            subject,
            f"{value} refuses the parameters: {type(error).__name__}: {error}",
            "correct preemption.parameters",
        ) from error
    problem = _problem(policy, preemption.policy)
    if problem:
        raise ConfigError(subject, f"{value} {problem}", "correct its package")
    assert isinstance(policy, PreemptionPolicy)
    return policy


def _problem(policy: Any, name: str) -> str:
    if not isinstance(policy, PreemptionPolicy):
        return f"returns a {type(policy).__name__}, not a PreemptionPolicy"
    if policy.name != name:
        return f"calls itself {policy.name!r}"
    span = policy.remembers
    if not isinstance(span, int | float) or not 0 <= span < float("inf"):
        return f"remembers {span!r}, which is not a number of seconds"
    return ""


def _entries() -> Any:
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)
