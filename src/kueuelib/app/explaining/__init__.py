"""`kueuelib explain`: reads the cluster, and finds the Workload of a job."""
