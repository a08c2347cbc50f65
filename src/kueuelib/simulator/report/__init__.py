"""The report of a simulation: one self-contained HTML page, and the formatting of numbers."""
