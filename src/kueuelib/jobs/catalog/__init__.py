"""The known kinds of jobs: those that come with kueuelib, and those of installed packages."""
