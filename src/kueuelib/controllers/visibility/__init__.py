"""The visibility API `visibility.kueue.x-k8s.io`: waiting Workloads in the engine's order
(KEP-168).

It is served by every replica of the manager, and reached through the API server, which aggregates
it: `kubectl get --raw /apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/NAME/pendingworkloads`.
"""
