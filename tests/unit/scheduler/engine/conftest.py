"""A cluster that is empty but for a namespace and a flavor."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kueuelib.scheduler import events
from kueuelib.testing.builders import make_flavor

sys.path.insert(0, str(Path(__file__).parent))

from engine_cluster import Cluster


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.tell(events.NamespaceSet("ns", {"team": "red"}), events.FlavorSet(make_flavor("f")))
    return made
