"""Access control: RBAC, ServiceAccount tokens, reviews, impersonation."""
