"""Reconciles one job: a pure plan of commands, and its execution."""
