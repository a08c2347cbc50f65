"""Prevents callers from granting permissions that they do not have themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kueuelib.embedded import failures
from kueuelib.embedded.access.attributes import EVERYTHING, MASTERS, AccessRule, Attributes
from kueuelib.embedded.access.rbac import RBAC, Rbac, grants, rules_in
from kueuelib.embedded.admission.plugin import AdmissionPlugin, AdmissionRequest, Operation, Reader

_COLLECTED = frozenset(("ownerReferences", "finalizers", "managedFields"))


class Escalation(AdmissionPlugin):
    """Checks writes of roles and bindings; `escalate` and `bind` permit exceptions.

    Attributes:
        rbac: the permissions of the caller; set once the service exists.
    """

    name = "RBAC"
    rbac: Rbac | None = None

    def handles(self, request: AdmissionRequest) -> bool:
        """Changes of roles and bindings by callers with limited permissions."""
        return (
            request.resource.group == RBAC
            and request.operation in (Operation.CREATE, Operation.UPDATE)
            and MASTERS not in request.caller.groups
        )

    def validate(self, request: AdmissionRequest, reader: Reader) -> None:
        """Refuses an escalation.

        Raises:
            Forbidden: the rules go beyond those of the caller.
            NotFound: the role of a binding does not exist.
        """
        del reader
        assert self.rbac is not None, "the plug-in is not in use yet"
        new, old, namespace = request.new, request.old, request.key.namespace
        if old is not None and _essence(new) == _essence(old):
            return
        if "roleRef" in new:
            ref = new["roleRef"]
            wish = _about("bind", ref, namespace)
        else:
            name = "" if old is None else request.key.name
            ref = {"kind": request.resource.kind, "name": name}
            wish = _about("escalate", ref, namespace)
        if self.rbac.authorize(request.caller, wish).allowed:
            return
        rules = self.rbac.rules_of(ref, namespace) if "roleRef" in new else rules_in(new)
        if rules is None:
            raise failures.absent(request.resource.plural, ref["name"], RBAC)
        held = self.rbac.rules(request.caller, namespace)
        missing = [_shown(each) for rule in rules for each in _missing(rule, held)]
        if missing:
            groups = " ".join(f'"{each}"' for each in request.caller.groups)
            raise request.refuse(
                f'user "{request.caller.user}" (groups=[{groups}]) is attempting to grant RBAC '
                "permissions not currently held:\n" + "\n".join(missing)
            )
        gathers = any((each or {}).get("aggregationRule") for each in (new, old))
        if gathers and any(any(_missing(rule, held)) for rule in EVERYTHING):
            raise request.refuse("must have cluster-admin privileges to use the aggregationRule")


def _essence(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Everything but what a garbage collector changes, which makes no rule stronger."""
    meta = {key: value for key, value in obj["metadata"].items() if key not in _COLLECTED}
    return {**obj, "metadata": meta}


def _about(verb: str, ref: Mapping[str, Any], namespace: str) -> Attributes:
    plural = "roles" if ref.get("kind") == "Role" else "clusterroles"
    return Attributes(verb, RBAC, plural, namespace=namespace, name=ref.get("name") or "")


def _missing(rule: AccessRule, held: tuple[AccessRule, ...]) -> Iterator[AccessRule]:
    """The smallest parts of a rule that the caller's rules do not cover."""
    for verb in rule.verbs:
        for path in rule.paths:
            if not any(grants(each, Attributes(verb, path=path)) for each in held):
                yield AccessRule((verb,), paths=(path,))
        for group in rule.groups:
            for resource in rule.resources:
                for name in rule.names or ("",):
                    plural, _, subresource = resource.partition("/")
                    wish = Attributes(verb, group, plural, subresource, name=name)
                    if not any(grants(each, wish) for each in held):
                        names = (name,) if name else ()
                        yield AccessRule((verb,), (group,), (resource,), names)


def _shown(rule: AccessRule) -> str:
    def texts(values: tuple[str, ...]) -> str:
        return "[" + " ".join(f'"{each}"' for each in values) + "]"

    if rule.paths:
        return f"{{NonResourceURLs:{texts(rule.paths)}, Verbs:{texts(rule.verbs)}}}"
    names = f", ResourceNames:{texts(rule.names)}" if rule.names else ""
    return (
        f"{{APIGroups:{texts(rule.groups)}, Resources:{texts(rule.resources)}{names}, "
        f"Verbs:{texts(rule.verbs)}}}"
    )
