"""HTML pages that need nothing else: templates, tables and how they look. Pure."""
