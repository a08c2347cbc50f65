"""The data that reconcilers of jobs read: caches, and objects outside all informers."""
