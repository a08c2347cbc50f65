"""Topology-aware scheduling: the nodes of a flavor as a tree of domains (KEP-2724).

`tree` holds these domains with what is free in their leaves, `nodes` keeps them up to date.
`placement` chooses domains for pods: `demand` is what they ask, `counting` how many of them each
domain holds, `searching` the choice. `pod_sets` does it for all pod sets of a Workload, and
`ungater` decides which pod goes to which of them. `room` sums up what is free.
"""
