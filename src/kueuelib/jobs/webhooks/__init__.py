"""Webhooks of all kinds of jobs: their rules, their server, and their entries in a cluster."""
