"""The HTTP interface: paths, media types, discovery, tables; without rules about objects."""
