"""The scheduler as a function: why a Workload waits, and what would admit it. No cluster."""

from kueuelib.scheduler import World, explain_workload
from kueuelib.testing import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
)


def main() -> None:
    """A queue of two CPUs, and a Workload that asks for three."""
    workload = make_workload("train", "team", {"cpu": 3})
    world = (
        World()
        .with_flavor(make_flavor("on-demand"))
        .with_cluster_queue(make_cluster_queue("shared", {"on-demand": {"cpu": 2}}))
        .with_local_queue(make_local_queue("team", "shared"))
        .with_namespace("ns", {})
        .with_workload(workload)
    )
    answer = explain_workload(world, workload.key, now=0.0)
    print(answer.verdict.value, "at position", answer.position)
    if answer.reason is not None:
        print(*answer.reason.text.split(", "), sep=",\n  ")
    for option in answer.changes:
        print("it would help to", option.change.text)


if __name__ == "__main__":
    main()

# Prints:
# waits at position 1
# couldn't assign flavors to pod set main: insufficient quota for cpu in flavor on-demand,
#   previously considered podsets requests (0) + current podset request (3) > maximum capacity (2)
# it would help to raise nominalQuota of flavor on-demand: cpu by 1 (to 3)
