"""Quota and the workloads that hold it: trees of cohorts (KEP-79), the cache, its frozen parts."""
