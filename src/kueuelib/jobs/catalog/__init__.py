"""Which kinds of jobs there are: those that come with kueuelib, and those of installed packages."""
