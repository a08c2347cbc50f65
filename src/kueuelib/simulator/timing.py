"""The durations in a simulation besides run times."""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen
class Timing:
    """The durations in a simulation besides run times.

    Attributes:
        stop_seconds: from the eviction of a running job until its quota is free.
        ready_seconds: from admission until its pods are ready; matters with `waitForPodsReady`.
        check_seconds: by AdmissionCheck, from the reservation until it is Ready; 0 for others.
        cycle_seconds: cycles begin at whole multiples of this; 0: whenever there is work.
    """

    stop_seconds: float = 0.0
    ready_seconds: float = 0.0
    check_seconds: Mapping[str, float] = attrs.field(factory=dict)
    cycle_seconds: float = 0.0
