"""The life of a Workload: all rules for its phases, checks, orders and patches.

`states` has the rules of its state, `life` its deadlines, `next_step` its next step, `orders` the
fate of the scheduler's decisions. `patches` computes how a status is written and `writer` writes
it; `served` finds the API version to use. Rules that the scheduler shares are in
`kueuelib.api.workload_state`; every other one exists only here.
"""
