"""Explains why a workload has no quota, and finds the smallest changes that would give it some.

    world = World(...)                       facts as values, from any source
    answer = explain(world, key, now)        position, reason, table, verified changes

Every change is tried on a copy of the facts, by the manager's own engine and cycle.
"""
