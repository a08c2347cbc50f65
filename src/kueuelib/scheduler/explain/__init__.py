"""Why a workload has no quota, and the smallest single changes that would give it some.

    world = World(...)                       facts as values, from any source
    answer = explain(world, key, now)        position, reason, table, verified changes

Every change is tried on a copy of the facts by the engine and the cycle that the manager runs.
"""
