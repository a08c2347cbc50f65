"""The users of the simulated cluster: their queues, their jobs, and their interference.

Everything is data, drawn from a seed, so that a run can be stored, repeated and shrunk.
"""

from __future__ import annotations

from kueuelib.testing.storm.users.acts import Act, Family, LabelledDraws, Scenario
from kueuelib.testing.storm.users.performing import FAILING, RawCalls, insist, meddle, perform
from kueuelib.testing.storm.users.scenario import scenario

__all__ = [
    "FAILING",
    "Act",
    "Family",
    "LabelledDraws",
    "RawCalls",
    "Scenario",
    "insist",
    "meddle",
    "perform",
    "scenario",
]
