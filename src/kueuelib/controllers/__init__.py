"""The controllers of the queueing objects: admission, Workloads, queues, flavors, checks.

`setup` is the entry point; the rules for the life of a Workload are in `kueuelib.workload`.
"""
