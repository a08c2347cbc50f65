"""Virtual time over the scheduler."""
