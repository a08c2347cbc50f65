"""Questions about the caller: who am I, may I. Whoever is authenticated may do everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded import failures
from kueuelib.embedded.admission.plugin import Caller

KINDS = {
    "selfsubjectreviews": "SelfSubjectReview",
    "tokenreviews": "TokenReview",
    "localsubjectaccessreviews": "LocalSubjectAccessReview",
    "selfsubjectaccessreviews": "SelfSubjectAccessReview",
    "selfsubjectrulesreviews": "SelfSubjectRulesReview",
    "subjectaccessreviews": "SubjectAccessReview",
}


def review(plural: str, given: Any, caller: Caller) -> Obj:
    """The answered review.

    Raises:
        BadRequest: it is none of that kind.
        NotFound: that kind of review is not answered.
    """
    kind = KINDS.get(plural)
    if kind is None:
        raise failures.unknown_resource()
    if not isinstance(given, Mapping) or given.get("kind") != kind:
        raise failures.bad_request(f"a {kind} is expected")
    body: Obj = {**given, "metadata": given.get("metadata") or {}}
    spec = given.get("spec") or {}
    if plural == "selfsubjectreviews":
        user: Obj = {"username": caller.user, "groups": list(caller.groups)}
        if caller.extra:
            user["extra"] = {key: list(values) for key, values in caller.extra.items()}
        body["status"] = {"userInfo": user}
    elif plural == "selfsubjectrulesreviews":
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        paths = {"verbs": ["*"], "nonResourceURLs": ["*"]}
        body["status"] = {
            "resourceRules": [everything],
            "nonResourceRules": [paths],
            "incomplete": False,
        }
    elif plural == "tokenreviews":
        body["status"] = {"authenticated": False, "user": {}}
    else:
        if not (spec.get("resourceAttributes") or spec.get("nonResourceAttributes")):
            raise failures.bad_request(
                "spec.resourceAttributes: Invalid value: null: exactly one of "
                "nonResourceAttributes or resourceAttributes must be specified"
            )
        body["status"] = {"allowed": True, "reason": "everybody with credentials may do everything"}
    return body
