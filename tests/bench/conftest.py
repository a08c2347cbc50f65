"""Benchmarks: figures in one run, next to what they are to be compared with. No times asserted."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[2]))  # for processes that a benchmark spawns
