"""What the reconcilers of jobs read: caches, and objects that no informer holds."""
