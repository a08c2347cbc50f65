"""The life of a Workload: all rules for its phases, checks, orders and patches.

`states` has the steps of its state and the patches that write it, on top of `phases` and `checks`.
`life` has its deadlines, `node_failures` those of its nodes, `next_step` its next step, `orders`
the fate of the scheduler's decisions. `short_reasons` and `job_events` say why it waits in short
words. `writer` writes a status, and `served` finds the API version to use; all others are pure.
Rules that the scheduler shares are in `kueuelib.api.workload_state`; every other one exists only
here.
"""
