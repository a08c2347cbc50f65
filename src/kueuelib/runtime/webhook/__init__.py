"""Admission and conversion webhooks: the server, its certificates, and who trusts them."""
