"""The admission loop, the applier, and the controllers of the queueing objects."""
