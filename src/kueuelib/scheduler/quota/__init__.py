"""The cache: quota, the Workloads that hold it, and the frozen state that a cycle sees (KEP-79).

`cache` is `kueuelib.scheduler.QuotaCache`, `snapshot` what a cycle or a trial works on.
"""
