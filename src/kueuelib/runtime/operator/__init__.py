"""Operators as declarations: the program and its manifests are made from kinds and functions.

`declaration` is what an author writes, `context` what a function may do, `reconciling` the way of
one object, `running` the program, `hooks` its webhooks.
"""
