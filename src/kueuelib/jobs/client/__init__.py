"""For programs that submit jobs, watch them, and wait for their end."""
