"""Decisions: which Workload gets quota, and a typed reason for every refusal.

Three parts, all of them pure: no cluster, no I/O, no clock, no randomness.

- **The scheduler**, `Engine`, takes facts and hands out cycles; `decide_cycle` decides one:

      engine = Engine(Settings())
      engine.observe(events.WorkloadSet(workload), now)   for every fact
      cycle = engine.next_cycle(now)                      None if there is nothing to decide
      settled = engine.settle(decide_cycle(cycle, now), now)

- **The cache**, `QuotaCache`, is `engine.cache`: ClusterQueues, cohorts and the Workloads that hold
  quota. `Snapshot(engine.cache.freeze(names))` is a state to try things on; a cycle sees one.
- **The preemptor**, `choose_victims`, names the Workloads that have to leave for another one.
  A `PreemptionPolicy` narrows its choice.

`explain_workload` says why a Workload of a `World` waits, and names the smallest changes that would
admit it. The controllers around all this are `kueuelib.controllers`. These names are stable, see
docs/stability.md; the modules that they come from are internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kueuelib.scheduler import events as events
    from kueuelib.scheduler import reasons as reasons
    from kueuelib.scheduler.decide.cycle import Admit as Admit
    from kueuelib.scheduler.decide.cycle import CycleInput as CycleInput
    from kueuelib.scheduler.decide.cycle import Plan as Plan
    from kueuelib.scheduler.decide.cycle import Wait as Wait
    from kueuelib.scheduler.decide.cycle import decide
    from kueuelib.scheduler.decide.preemption.victims import Victim as Victim
    from kueuelib.scheduler.engine import Engine as Engine
    from kueuelib.scheduler.engine import Settled as Settled
    from kueuelib.scheduler.explain.answer import Explanation as Explanation
    from kueuelib.scheduler.explain.answer import explain
    from kueuelib.scheduler.explain.leaving import choose_victims as choose_victims
    from kueuelib.scheduler.explain.world import World as World
    from kueuelib.scheduler.policy import Asking as Asking
    from kueuelib.scheduler.policy import PreemptionPolicy as PreemptionPolicy
    from kueuelib.scheduler.policy import Refusal as Refusal
    from kueuelib.scheduler.policy import Running as Running
    from kueuelib.scheduler.quota.amounts import FlavorResource as FlavorResource
    from kueuelib.scheduler.quota.cache import QuotaCache as QuotaCache
    from kueuelib.scheduler.quota.holders import Holder as Holder
    from kueuelib.scheduler.quota.snapshot import Snapshot as Snapshot
    from kueuelib.scheduler.settings import FairSharingRules as FairSharingRules
    from kueuelib.scheduler.settings import Settings as Settings

    decide_cycle, explain_workload = decide, explain
else:
    from kueuelib.lazy_exports import lazily

    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "kueuelib.scheduler.decide.cycle": "Admit CycleInput Plan Wait decide_cycle=decide",
            "kueuelib.scheduler.decide.preemption.victims": "Victim",
            "kueuelib.scheduler.engine": "Engine Settled",
            "kueuelib.scheduler.events": "events",
            "kueuelib.scheduler.explain.answer": "Explanation explain_workload=explain",
            "kueuelib.scheduler.explain.leaving": "choose_victims",
            "kueuelib.scheduler.explain.world": "World",
            "kueuelib.scheduler.policy": "Asking PreemptionPolicy Refusal Running",
            "kueuelib.scheduler.quota.amounts": "FlavorResource",
            "kueuelib.scheduler.quota.cache": "QuotaCache",
            "kueuelib.scheduler.quota.holders": "Holder",
            "kueuelib.scheduler.quota.snapshot": "Snapshot",
            "kueuelib.scheduler.reasons": "reasons",
            "kueuelib.scheduler.settings": "FairSharingRules Settings",
        },
    )
