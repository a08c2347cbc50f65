"""What an admission-check author needs."""
