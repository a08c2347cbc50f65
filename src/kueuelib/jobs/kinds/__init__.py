"""Kinds of jobs that a CRD defines; they may appear, change versions and disappear at any time.

`presence` decides whether a kind is served, `follower` reads its objects while it is, and
`kind_controller` reconciles them if this process is the leader.
"""
