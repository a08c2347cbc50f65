"""Scheduler, cache and preemptor as values: decide cycles, ask about quota, choose victims."""

from kueuelib.runtime import Condition
from kueuelib.scheduler import FlavorResource, Snapshot, World, choose_victims, decide_cycle
from kueuelib.testing import make_cluster_queue, make_flavor, make_local_queue, make_workload

NOW = 1000.0
CPU = FlavorResource("spot", "cpu")
HELD = tuple(
    Condition(each, "True", last_transition_time=NOW) for each in ("QuotaReserved", "Admitted")
)


def main() -> None:
    """Two Workloads get the quota, and then one of a higher priority comes."""
    policy = {"withinClusterQueue": "LowerPriority"}
    world = (
        World()
        .with_flavor(make_flavor("spot"))
        .with_cluster_queue(make_cluster_queue("all", {"spot": {"cpu": 4}}, preemption=policy))
        .with_local_queue(make_local_queue("team", "all"))
        .with_namespace("ns", {})
        .with_workload(make_workload("low", "team", {"cpu": 1}, priority=1))
        .with_workload(make_workload("middle", "team", {"cpu": 3}, priority=5))
    )
    scheduler = world.engine(NOW)
    while (cycle := scheduler.next_cycle(NOW)) is not None:
        plan = decide_cycle(cycle, NOW)
        for one in plan.admissions:
            print(one.key, "is admitted")
            status = one.workload.status.evolve(admission=one.admission, conditions=HELD)
            world = world.with_workload(one.workload.evolve(status=status))
        scheduler.settle(plan, NOW)

    cache = scheduler.cache
    print("free:", cache.available("all", CPU), "milli-cores;", len(cache.holders), "hold quota")
    snapshot = Snapshot(cache.freeze(["all"]))
    for holder in cache.holders.values():
        snapshot.take_out(holder)
        if (queue := snapshot.queue("all")) is not None:
            print(f"without {holder.key.name}:", snapshot.available(queue, CPU))

    urgent = make_workload("urgent", "team", {"cpu": 1}, priority=9)
    for victim in choose_victims(world.with_workload(urgent), urgent.key, NOW):
        print("has to leave:", victim.key, "by", victim.path.words)


if __name__ == "__main__":
    main()

# Prints:
# ns/middle is admitted
# ns/low is admitted
# free: 0 milli-cores; 2 hold quota
# without middle: 3000
# without low: 4000
# has to leave: ns/low by prioritization in the ClusterQueue
