"""The digest that says from which pod templates an object was made."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

MADE_FROM: Final = "kueuelib.dev/made-from"
"""The annotation that holds the digest.

On an updated Workload: of the pod sets that the update wrote, and of the generation before it. If
the CRD of Workloads is older than the cluster, the API server drops fields of the templates, so the
Workload never equals its job. An update that leaves the generation as it is has shown what the
server keeps, and the Workload counts as equal until its generation changes. Otherwise it would be
updated, and the job stopped, again and again.

On a ProvisioningRequest: of the templates and flavors of its pods. A request outlives its
reservation until it is deleted. If the next one is about other pods or other flavors, its name and
counts may still be the same.
"""


def digest_of(pods: Any) -> str:
    """A short text that is the same for equal values of JSON; others count as their text."""
    text = json.dumps(pods, default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
