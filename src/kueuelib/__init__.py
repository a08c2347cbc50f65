"""Kubernetes controllers in Python, and a complete job-queueing system on top."""

__version__ = "0.1.0"
