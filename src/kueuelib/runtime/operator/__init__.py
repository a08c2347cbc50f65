"""Operators as declarations: the program and its manifests are made from kinds and functions.

`declaration` is what an author writes, `context` what a function may do, `reconciling` how one
object is handled, `program` its process, `hooks` its webhooks.
"""
