"""The labels in the template of a pod set that is made from pods (KEP-976).

ProvisioningRequests, topology spread and affinity select pods by their labels, so the template has
those that every pod of the role has with the same value. Our own are left out, and those by which
other controllers distinguish pods or their revisions. They are never compared: a Workload without
them, from another manager, stands for its pods as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kueuelib.api.kinds import KUEUE
from kueuelib.api.meta import Obj, labels_of

CONTROLLERS: Final = frozenset(
    {
        *("controller-uid", "batch.kubernetes.io/controller-uid"),
        *("job-name", "batch.kubernetes.io/job-name"),
        "batch.kubernetes.io/job-completion-index",
        *("statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"),
        *("controller-revision-hash", "pod-template-hash", "pod-template-generation"),
    }
)
"""Labels that Kubernetes' own controllers write on their pods."""
_PREFIXES = frozenset({KUEUE, "leaderworkerset.sigs.k8s.io"})


def labelled_template(pods: Sequence[Obj], spec: Obj) -> Obj:
    """A raw template with that spec, for raw pods of one role; at least one pod."""
    first, *others = map(labels_of, pods)
    labels = {
        name: value
        for name, value in first.items()
        if name not in CONTROLLERS
        and name.partition("/")[0] not in _PREFIXES
        and all(each.get(name) == value for each in others)
    }
    return {"metadata": {"labels": labels}, "spec": spec} if labels else {"spec": spec}
