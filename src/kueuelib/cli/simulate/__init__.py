"""`kueuelib simulate`."""
