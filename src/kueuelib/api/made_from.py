"""The digest that says from which pod templates an object was made."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

MADE_FROM: Final = "kueuelib.dev/made-from"
"""The annotation that holds the digest.

On a changed Workload: of the pod sets that it was given, and of those that it had then. The CRD of
Workloads may be older than the cluster. Then the API server drops fields of templates that the job
has, and the Workload never equals it. Once it is given the same pod sets again, it has what is left
of them, and as long as it has exactly this, it counts as equal: it is not updated and the job not
stopped again and again.

On a ProvisioningRequest: of the templates and flavors of its pods. A request outlives its
reservation until it is deleted. If the next one is about other pods or other flavors, its name and
counts may still be the same.
"""


def digest_of(pods: Any) -> str:
    """A short text that is the same for equal values of JSON; others count as their text."""
    text = json.dumps(pods, default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
