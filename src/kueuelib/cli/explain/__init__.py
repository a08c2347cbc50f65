"""`kueuelib explain`: why something waits, and the smallest change that would admit it."""
