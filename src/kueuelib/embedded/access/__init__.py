"""Who may do what: RBAC, ServiceAccount tokens, reviews, impersonation."""
