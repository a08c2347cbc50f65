"""Patches with schema: strategic merge, and server-side apply with owners."""
