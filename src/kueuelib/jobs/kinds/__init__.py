"""Kinds of jobs that a CRD defines: they come, change versions and go while the manager runs.

`presence` says whether a kind is there, `follower` reads its objects for as long as it is, and
`turns` reconciles them where this process is the leader.
"""
