"""The life of a Workload: everything that is known about its phases, checks, orders and patches.

`states` has the rules of its state, `life` what time does to it, `plan` its next step, `orders`
what becomes of what the scheduler decided; `patches` says how a status is written and `writer`
writes it; `served` finds the version to speak. Nobody else keeps a copy of a rule.
"""
