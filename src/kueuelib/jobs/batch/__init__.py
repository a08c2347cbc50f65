"""`batch/v1` Job: the kind that is programmed in full, and the model for others."""
