"""The controllers of the queueing objects: admission, Workloads, queues, flavors, checks.

`setup` is the way in; what they know about the life of a Workload is in `kueuelib.workload`.
"""
