"""Values: Kubernetes and Kueue objects, quantities, both wire versions, schemas, rules."""
