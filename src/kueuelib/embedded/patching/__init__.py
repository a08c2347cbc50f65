"""Patches that know what they patch: strategic merge, and server-side apply with owners."""
