"""The preemptor: finds the Workloads that must release quota so that another one fits (KEP-83).

`victims` says which may leave and in which order, `search` and `fair` choose a minimal set, and
`guard` leaves some out.
`kueuelib.scheduler.choose_victims` asks it about one Workload.
"""
