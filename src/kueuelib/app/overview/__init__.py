"""What `kueuelib report` shows of a cluster, as values: quota, waiting, running and evicted
Workloads.
"""
