"""Schema keywords of the CRDs where two kinds share a class but not its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kueuelib.api.core import TAINT_EFFECTS
from kueuelib.api.patterns import LABEL_VALUE, OPTIONAL_QUALIFIED, QUALIFIED

_EFFECTS: Final = list(TAINT_EFFECTS)


def _toleration_keywords(at: str) -> Mapping[str, Mapping[str, Any]]:
    return {
        f"{at}.key": OPTIONAL_QUALIFIED,
        f"{at}.operator": {"enum": ["Equal", "Exists", ""]},
        f"{at}.value": LABEL_VALUE,
        f"{at}.effect": {"enum": [*_EFFECTS, ""]},
    }


_UPDATES: Final = "status.admissionChecks[].podSetUpdates[]"
_EXPRESSION: Final = "spec.namespaceSelector.matchExpressions[]"

KEYWORDS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "ClusterQueue": {
        "spec.namespaceSelector.matchLabels{}": LABEL_VALUE,
        f"{_EXPRESSION}.key": QUALIFIED,
        f"{_EXPRESSION}.operator": {"enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
        f"{_EXPRESSION}.values[]": LABEL_VALUE,
    },
    "ResourceFlavor": {
        "spec.nodeTaints[].key": QUALIFIED,
        "spec.nodeTaints[].value": LABEL_VALUE,
        "spec.nodeTaints[].effect": {"enum": _EFFECTS},
        **_toleration_keywords("spec.tolerations[]"),
    },
    "Workload": {
        f"{_UPDATES}.labels{{}}": LABEL_VALUE,
        f"{_UPDATES}.nodeSelector{{}}": LABEL_VALUE,
        **_toleration_keywords(f"{_UPDATES}.tolerations[]"),
    },
}
"""Keywords that a shared class has only at these places."""
