"""The controllers of a cluster: Jobs, scheduling, kubelets, garbage collection, namespaces."""
