"""Regular expressions in linear time, in the dialect of Go (RE2): no backtracking, no look-around.

A short pattern can keep Python's own engine busy for years, and every user who may create a
CustomResourceDefinition may write patterns. `compile_pattern` gives a `Pattern`.
"""

from __future__ import annotations

from kueuelib.embedded.cel.regex.engine import Pattern, compile_pattern
from kueuelib.embedded.cel.regex.syntax import BadPattern

__all__ = ["BadPattern", "Pattern", "compile_pattern"]
