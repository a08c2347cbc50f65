"""`kueuelib report`: one page to look at, as a file or live."""
