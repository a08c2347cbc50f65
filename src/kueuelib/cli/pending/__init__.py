"""`kueuelib pending`: which Workloads wait, in which order, and why."""
