"""Access reviews: who am I, may I, may they, whose token is this."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from kueuelib.api.meta import Obj
from kueuelib.embedded import failures
from kueuelib.embedded.access.attributes import AccessRule, Attributes, Authorizer
from kueuelib.embedded.access.tokens import ISSUER, Verified
from kueuelib.embedded.admission.plugin import UserInfo
from kueuelib.embedded.builtins.fields import section
from kueuelib.errors import BadRequest, FieldError

KINDS: Mapping[str, tuple[str, str]] = {
    "selfsubjectreviews": ("authentication.k8s.io", "SelfSubjectReview"),
    "tokenreviews": ("authentication.k8s.io", "TokenReview"),
    "localsubjectaccessreviews": ("authorization.k8s.io", "LocalSubjectAccessReview"),
    "selfsubjectaccessreviews": ("authorization.k8s.io", "SelfSubjectAccessReview"),
    "selfsubjectrulesreviews": ("authorization.k8s.io", "SelfSubjectRulesReview"),
    "subjectaccessreviews": ("authorization.k8s.io", "SubjectAccessReview"),
}
"""Group and kind by plural."""
GROUPS = tuple(dict.fromkeys(group for group, _ in KINDS.values()))

EXACTLY_ONE = "exactly one of nonResourceAttributes or resourceAttributes must be specified"


@attrs.frozen
class Reviews:
    """Answers reviews.

    Attributes:
        authorizer: decides.
        verify: returns whose token it is, or None.
    """

    authorizer: Authorizer
    verify: Callable[[str], Verified | None]

    def answer(self, plural: str, namespace: str, given: Any, caller: UserInfo) -> Obj:
        """The answered review.

        Raises:
            BadRequest: it is not of that kind.
            Invalid: a required field is missing.
            NotFound: that kind of review is not supported.
        """
        group_and_kind = KINDS.get(plural)
        if group_and_kind is None:
            raise failures.unknown_resource()
        group, kind = group_and_kind
        if not isinstance(given, Mapping) or given.get("kind", kind) != kind:
            raise BadRequest(f"a {kind} is expected")
        spec = given.get("spec") or {}
        if not isinstance(spec, Mapping):
            raise BadRequest(f"the spec of a {kind} is an object")
        meta = section(given, "metadata")
        ignored = {"managedFields", "namespace" if plural.startswith("local") else ""}
        if "Access" in kind and any(meta[key] for key in meta.keys() - ignored):
            raise _invalid(kind, "metadata", "must be empty", None)
        body: Obj = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": meta}
        if plural != "selfsubjectreviews":
            body["spec"] = dict(spec)
        body["status"] = self._status(plural, kind, namespace, spec, caller)
        return body

    def _status(
        self, plural: str, kind: str, namespace: str, spec: Mapping[str, Any], caller: UserInfo
    ) -> Obj:
        if plural == "selfsubjectreviews":
            return {"userInfo": user_info(caller)}
        if plural == "tokenreviews":
            return self._token(spec)
        if plural == "selfsubjectrulesreviews":
            return self._rules(caller, spec.get("namespace") or "")
        asks = caller
        if not plural.startswith("self"):
            asks = _subject(kind, spec)
        wish = _wish(kind, spec)
        if plural == "localsubjectaccessreviews" and wish.namespace != namespace:
            raise _invalid(
                kind,
                "spec.resourceAttributes.namespace",
                "must match metadata.namespace",
                wish.namespace,
            )
        decision = self.authorizer.authorize(asks, wish)
        status: Obj = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        return status

    def _token(self, spec: Mapping[str, Any]) -> Obj:
        token = spec.get("token")
        if not token or not isinstance(token, str):
            raise BadRequest("token is required for TokenReview in authentication")
        wanted = spec.get("audiences") or [ISSUER]
        verified = self.verify(token)
        if verified is None:
            return {"user": {}, "error": "invalid bearer token"}
        audiences = [each for each in wanted if each in verified.audiences]
        if not audiences:
            text = f"token audiences {list(verified.audiences)} is invalid for the target "
            return {"user": {}, "error": f"{text}audiences {list(wanted)}"}
        return {"authenticated": True, "user": user_info(verified.caller), "audiences": audiences}

    def _rules(self, caller: UserInfo, namespace: str) -> Obj:
        if not namespace:
            raise BadRequest("no namespace on request")
        rules = self.authorizer.rules(caller, namespace)
        resources = [_raw(rule) for rule in rules if not rule.paths]
        paths = [_raw(rule) for rule in rules if rule.paths]
        return {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}


def _raw(rule: AccessRule) -> Obj:
    if rule.paths:
        return {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.paths)}
    raw: Obj = {
        "verbs": list(rule.verbs),
        "apiGroups": list(rule.groups),
        "resources": list(rule.resources),
    }
    if rule.names:
        raw["resourceNames"] = list(rule.names)
    return raw


def user_info(caller: UserInfo) -> Obj:
    """A caller as a `UserInfo`."""
    user: Obj = {"username": caller.user}
    if caller.uid:
        user["uid"] = caller.uid
    if caller.groups:
        user["groups"] = list(caller.groups)
    if caller.extra:
        user["extra"] = {key: list(values) for key, values in caller.extra.items()}
    return user


def _subject(kind: str, spec: Mapping[str, Any]) -> UserInfo:
    user, groups = spec.get("user") or "", spec.get("groups") or ()
    if not user and not groups:
        raise _invalid(kind, "spec.user", "at least one of user or group must be specified", user)
    return UserInfo(user, spec.get("uid") or "", tuple(groups), spec.get("extra") or {})


def _wish(kind: str, spec: Mapping[str, Any]) -> Attributes:
    about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (about is None) == (path is None):
        field = "spec.nonResourceAttributes" if about is not None else "spec.resourceAttributes"
        raise _invalid(kind, field, EXACTLY_ONE, None)
    if about is None:
        assert path is not None
        return Attributes(path.get("verb") or "", path=path.get("path") or "")
    names = ("verb", "group", "resource", "subresource", "namespace", "name", "version")
    return Attributes(**{name: about.get(name) or "" for name in names})


def _invalid(kind: str, path: str, text: str, value: Any) -> Exception:
    shown = "null" if value is None else f'"{value}"'
    error = FieldError(path, "FieldValueInvalid", f"Invalid value: {shown}: {text}")
    return failures.invalid_named(kind, "authorization.k8s.io", "", [error])
