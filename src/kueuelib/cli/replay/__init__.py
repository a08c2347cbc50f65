"""`kueuelib replay`."""
