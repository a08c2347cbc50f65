"""Decisions: which workloads get quota, and a typed reason for every refusal."""
