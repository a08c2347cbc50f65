"""Kinds of jobs that a CRD defines; they may appear, change versions and disappear at any time.

`follower` reads the objects of a kind while it is served, and `kind_controller` reconciles them if
this process is the leader.
"""
