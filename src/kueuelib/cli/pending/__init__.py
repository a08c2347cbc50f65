"""`kueuelib pending`: what waits, in which order, and why."""
