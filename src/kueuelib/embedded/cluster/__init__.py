"""What a cluster does around its API server: Jobs, scheduling, kubelets, garbage, namespaces."""
