"""Configuration in, wired manager out; and what `kueuelib install` writes."""
