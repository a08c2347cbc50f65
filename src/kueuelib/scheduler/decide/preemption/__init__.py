"""The preemptor: finds the Workloads that must release quota so that another one fits (KEP-83).

`candidates` says which may leave and in which order, `search` and `fair` choose a minimal set.
`kueuelib.scheduler.choose_victims` asks it about one Workload.
"""
