"""The content of `kueuelib report` as values: quota, waiting, running and evicted
Workloads.
"""
