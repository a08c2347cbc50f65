"""The API server in pure Python, and the simulated cluster."""
