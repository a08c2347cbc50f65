"""What `kueuelib report` shows of a cluster, as values: quota, who waits, who runs, who left."""
