"""`kueuelib explain`: what it reads of a cluster, and which Workload a job means."""
