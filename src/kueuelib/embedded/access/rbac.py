"""Role-based access control: stored and initial roles, aggregation, no escalation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

import attrs

from kueuelib.api.kinds import SERVICE_ACCOUNTS
from kueuelib.api.meta import Obj, ObjectKey, Resource, labels_of
from kueuelib.embedded import failures
from kueuelib.embedded.access.attributes import (
    AUTHENTICATED,
    EVERYTHING,
    MASTERS,
    UNAUTHENTICATED,
    AccessRule,
    Attributes,
    Decision,
)
from kueuelib.embedded.admission.plugin import (
    AdmissionAttributes,
    AdmissionPlugin,
    Operation,
    StoreReader,
    UserInfo,
)
from kueuelib.embedded.committing import Commits
from kueuelib.embedded.registry.kinds import Kind, Registry
from kueuelib.embedded.storage import StaleWrite, Storage, StorageEvent
from kueuelib.machinery.selectors import from_label_selector

RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLES = Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(
    RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
ROLES = Resource(RBAC, "v1", "roles", "Role", namespaced=True)
ROLE_BINDINGS = Resource(RBAC, "v1", "rolebindings", "RoleBinding", namespaced=True)
ACCOUNT_PREFIX = "system:serviceaccount:"


@attrs.frozen
class _Binding:
    """The roles of each user.

    Attributes:
        described: the binding, for people.
        subjects: kind, namespace and name of each.
        role: the role; its namespace is empty for a ClusterRole.
    """

    described: str
    subjects: frozenset[tuple[str, str]]
    role: ObjectKey


class Rbac:
    """Evaluates roles and bindings, which are cached until one of them changes."""

    def __init__(self, reader: StoreReader, commits: Commits) -> None:
        self._reader = reader
        self._bindings: dict[str, list[_Binding]] = {}
        self._rules: dict[ObjectKey, tuple[AccessRule, ...]] = {}
        commits.listen(self._notice)

    def _notice(self, kind: Kind, _: StorageEvent) -> None:
        if kind.group == RBAC:
            self._bindings.clear()
            self._rules.clear()

    def authorize(self, caller: UserInfo, wish: Attributes) -> Decision:
        """Whether a rule of a role bound to the caller allows the request."""
        if MASTERS in caller.groups:
            return Decision(allowed=True)
        for binding in self._of(caller, wish.namespace):
            for rule in self._role(binding.role):
                if grants(rule, wish):
                    who = _subject(caller, binding)
                    text = f"RBAC: allowed by {binding.described} to {who}"
                    return Decision(allowed=True, reason=text)
        return Decision(allowed=False)

    def rules(self, caller: UserInfo, namespace: str) -> tuple[AccessRule, ...]:
        """Everything that a caller may do in a namespace, including cluster-wide grants."""
        if MASTERS in caller.groups:
            return EVERYTHING
        rules = [
            rule for binding in self._of(caller, namespace) for rule in self._role(binding.role)
        ]
        return tuple(dict.fromkeys(rules))

    def rules_of(self, ref: Mapping[str, Any], namespace: str) -> tuple[AccessRule, ...] | None:
        """The rules of the role that a binding refers to; None if it does not exist."""
        resource = ROLES if ref.get("kind") == "Role" else CLUSTER_ROLES
        key = ObjectKey(namespace if resource.namespaced else "", ref.get("name") or "")
        return None if self._reader.get(resource, key) is None else self._role(key)

    def _of(self, caller: UserInfo, namespace: str) -> Iterator[_Binding]:
        names = {("User", caller.user), *(("Group", group) for group in caller.groups)}
        for binding in self._all(""):
            if not names.isdisjoint(binding.subjects):
                yield binding
        if namespace:
            for binding in self._all(namespace):
                if not names.isdisjoint(binding.subjects):
                    yield binding

    def _all(self, namespace: str) -> list[_Binding]:
        bindings = self._bindings.get(namespace)
        if bindings is None:
            resource = ROLE_BINDINGS if namespace else CLUSTER_ROLE_BINDINGS
            bindings = self._bindings[namespace] = [
                _binding(obj, namespace) for obj in self._reader.items(resource, namespace)
            ]
        return bindings

    def _role(self, key: ObjectKey) -> tuple[AccessRule, ...]:
        rules = self._rules.get(key)
        if rules is None:
            obj = self._reader.get(ROLES if key.namespace else CLUSTER_ROLES, key)
            rules = self._rules[key] = rules_in(obj or {})
        return rules


def _subject(caller: UserInfo, binding: _Binding) -> str:
    for kind, name in (("User", caller.user), *(("Group", each) for each in caller.groups)):
        if (kind, name) in binding.subjects:
            if kind == "User" and name.startswith(ACCOUNT_PREFIX):
                space, _, account = name.removeprefix(ACCOUNT_PREFIX).partition(":")
                return f'ServiceAccount "{account}/{space}"'
            return f'{kind} "{name}"'
    raise AssertionError("a binding was found by one of its subjects")


def _binding(obj: Obj, namespace: str) -> _Binding:
    name = obj["metadata"]["name"]
    ref = obj.get("roleRef") or {}
    subjects = set()
    for subject in obj.get("subjects") or ():
        if subject.get("kind") == SERVICE_ACCOUNTS.kind:
            space = subject.get("namespace") or namespace
            subjects.add(("User", f"{ACCOUNT_PREFIX}{space}:{subject.get('name')}"))
        else:
            subjects.add((subject.get("kind") or "", subject.get("name") or ""))
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    shown = f'"{name}/{namespace}"' if namespace else f'"{name}"'
    return _Binding(
        f'{kind} {shown} of {ref.get("kind")} "{ref.get("name")}"',
        frozenset(subjects),
        ObjectKey(namespace if ref.get("kind") == "Role" else "", ref.get("name") or ""),
    )


def rules_in(role: Mapping[str, Any]) -> tuple[AccessRule, ...]:
    """The rules of a Role or ClusterRole."""
    return tuple(
        AccessRule(
            tuple(rule.get("verbs") or ()),
            tuple(rule.get("apiGroups") or ()),
            tuple(rule.get("resources") or ()),
            tuple(rule.get("resourceNames") or ()),
            tuple(rule.get("nonResourceURLs") or ()),
        )
        for rule in role.get("rules") or ()
    )


def grants(rule: AccessRule, wish: Attributes) -> bool:
    """Whether one rule allows a request."""
    if "*" not in rule.verbs and wish.verb not in rule.verbs:
        return False
    if not wish.resource:
        return any(_covers_path(pattern, wish.path) for pattern in rule.paths)
    return (
        ("*" in rule.groups or wish.group in rule.groups)
        and any(_covers_resource(pattern, wish) for pattern in rule.resources)
        and (not rule.names or wish.name in rule.names)
    )


def _covers_resource(pattern: str, wish: Attributes) -> bool:
    if pattern in ("*", wish.full_resource):
        return True
    return bool(wish.subresource) and pattern == f"*/{wish.subresource}"


def _covers_path(pattern: str, path: str) -> bool:
    if pattern in ("*", path):
        return True
    return pattern.endswith("*") and path.startswith(pattern.rstrip("*"))


# ---- prevents callers from granting permissions that they do not have themselves -----------------

_COLLECTED = frozenset(("ownerReferences", "finalizers", "managedFields"))


class Escalation(AdmissionPlugin):
    """Checks writes of roles and bindings; `escalate` and `bind` permit exceptions.

    Attributes:
        rbac: the permissions of the caller; set once the service exists.
    """

    name = "RBAC"
    rbac: Rbac | None = None

    def handles(self, request: AdmissionAttributes) -> bool:
        """Changes of roles and bindings by callers with limited permissions."""
        return (
            request.resource.group == RBAC
            and request.operation in (Operation.CREATE, Operation.UPDATE)
            and MASTERS not in request.caller.groups
        )

    def validate(self, request: AdmissionAttributes, reader: StoreReader) -> None:
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


# ---- the initial roles and bindings of every cluster with RBAC -----------------------------------

BOOTSTRAP = "kubernetes.io/bootstrapping"
AGGREGATE = f"{RBAC}/aggregate-to-"
_READER: Final = "extension-apiserver-authentication"
_WORDS: Final = {
    "core": [""],
    "RBAC": [RBAC],
    "READ": ["get", "list", "watch"],
    "WRITE": ["create", "delete", "deletecollection", "patch", "update"],
    "HEALTH": ["/healthz", "/livez", "/readyz", "/version", "/version/"],
    "ISSUER": ["/.well-known/openid-configuration", "/.well-known/openid-configuration/"],
    "CORE": ["configmaps", "pods", "podtemplates", "secrets", "services", "serviceaccounts"],
    "READABLE": [
        *("configmaps", "pods", "podtemplates", "services", "serviceaccounts", "events"),
        *("limitranges", "resourcequotas", "resourcequotas/status", "namespaces"),
        *("namespaces/status", "pods/log", "pods/status"),
    ],
}
_BOUND: Final = {
    "cluster-admin": (MASTERS,),
    "system:discovery": (AUTHENTICATED,),
    "system:public-info-viewer": (AUTHENTICATED, UNAUTHENTICATED),
    "system:basic-user": (AUTHENTICATED,),
    "system:service-account-issuer-discovery": ("system:serviceaccounts",),
}


def _object(kind: str, name: str, **more: Any) -> Obj:
    notes, labels = {f"{RBAC}/autoupdate": "true"}, {BOOTSTRAP: "rbac-defaults"}
    meta = {"name": name, "labels": labels, "annotations": notes}
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": meta, **more}


def _rule(groups: str, names: str, verbs: str) -> Obj:
    words = [
        [inner for word in part.split() for inner in _WORDS.get(word, [word])]
        for part in (groups, names, verbs)
    ]
    if words[0] == ["url"]:
        return {"nonResourceURLs": words[1], "verbs": words[2]}
    return dict(zip(("apiGroups", "resources", "verbs"), words, strict=True))


def _roles() -> Iterator[Obj]:
    role: Obj = {}
    text = files("kueuelib.embedded.access").joinpath("roles.txt").read_text("ascii")
    for line in filter(lambda line: not line.startswith("#"), text.splitlines()):
        if line.startswith(" "):
            role["rules"].append(_rule(*line.split(" : ")))
            continue
        name, *ways = line.split()
        role = _object("ClusterRole", name, rules=[])
        for way, _, other in (each.partition(":") for each in ways):
            label = {f"{AGGREGATE}{other}": "true"}
            if way == "into":
                role["metadata"]["labels"] |= label
            else:
                role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": label}]}
        yield role


def default_roles() -> list[Obj]:
    """Roles first, then bindings."""
    read = _rule("core", "configmaps", "READ") | {"resourceNames": [_READER]}
    reader = _object("Role", f"{_READER}-reader", rules=[read])
    reader["metadata"]["namespace"] = "kube-system"
    bindings = [
        _object(
            "ClusterRoleBinding",
            role,
            roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            subjects=[{"apiGroup": RBAC, "kind": "Group", "name": group} for group in groups],
        )
        for role, groups in _BOUND.items()
    ]
    return [*_roles(), reader, *bindings]


# ---- aggregated ClusterRoles, whose rules follow the roles that their selectors match ------------


class RoleAggregation:
    """Updates aggregated ClusterRoles soon after every change of a role."""

    def __init__(self, storage: Storage, registry: Registry, commits: Commits) -> None:
        self._storage = storage
        self._registry = registry
        self._commits = commits
        self._handle: asyncio.Handle | None = None
        commits.listen(self._notice)

    def close(self) -> None:
        """Stops."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _notice(self, kind: Kind, _: StorageEvent) -> None:
        if (kind.group, kind.kind) == CLUSTER_ROLES.group_kind and self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self.refresh)

    def refresh(self) -> None:
        """Writes outdated rules."""
        self._handle = None
        kind = self._registry.by_plural(CLUSTER_ROLES.group, CLUSTER_ROLES.plural)
        assert kind is not None
        table = self._storage.table(kind.table)
        entries = list(table.entries())
        roles = [entry.obj() for entry in entries]
        for entry, role in zip(entries, roles, strict=True):
            if not role.get("aggregationRule") or role["metadata"].get("deletionTimestamp"):
                continue
            rules = _aggregated(role, roles)
            if rules == (role.get("rules") or []):
                continue
            try:
                self._commits.put(kind, entry.key, role | {"rules": rules}, entry)
            except StaleWrite as error:
                raise AssertionError("nothing was awaited since the entry was read") from error


def _aggregated(role: Obj, roles: list[Obj]) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = []
    for raw in role["aggregationRule"].get("clusterRoleSelectors") or ():
        selector = from_label_selector(raw)
        for other in roles:
            if other["metadata"]["name"] == role["metadata"]["name"]:
                continue
            if selector.matches(labels_of(other)):
                rules += [rule for rule in other.get("rules") or () if rule not in rules]
    return rules
