"""`kueuelib doctor`: what is wrong with an installation, and the command that fixes it."""
