"""The HTTP face: paths, media types, discovery, tables; no rule about objects lives here."""
