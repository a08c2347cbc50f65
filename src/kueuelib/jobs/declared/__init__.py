"""Kinds of jobs that are declared by paths, and those of other projects that come with kueuelib."""
