"""`kueuelib new`: a project to start from."""
