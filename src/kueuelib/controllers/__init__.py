"""The controllers of the queueing objects: admission, Workloads, queues, flavors, checks.

`setup` is the way in; `workload_state` and `status_writes` are for everybody who changes the status
of a Workload.
"""
