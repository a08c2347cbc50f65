"""Configuration in, wired manager out."""
