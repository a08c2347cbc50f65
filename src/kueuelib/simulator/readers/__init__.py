"""Formats of traces, one module each: a file in, jobs out."""
