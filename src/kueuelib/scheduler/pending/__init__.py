"""Waiting Workloads: their requests, their places, and what wakes them."""
