"""HTML pages that need nothing else: elements, tables and how they look. Pure."""
