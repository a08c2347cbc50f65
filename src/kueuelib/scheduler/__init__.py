"""Decisions: who gets quota, and a typed reason for every no."""
