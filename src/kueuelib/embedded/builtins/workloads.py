"""The rules for Deployments, ReplicaSets and similar kinds: selector, pod template, and numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.fields import (
    forbidden,
    invalid,
    listed,
    non_negative,
    not_supported,
    required,
    section,
)
from kueuelib.embedded.builtins.metadata import validate_annotations, validate_labels
from kueuelib.embedded.builtins.pod_spec import validate_pod_spec
from kueuelib.embedded.builtins.rule_table import BrokenRules, Check, ValuePlace, check
from kueuelib.embedded.builtins.volume_rules import claimed, with_claims
from kueuelib.embedded.schema.written import as_given, internal
from kueuelib.errors import FieldError, InvalidSelector
from kueuelib.machinery.selectors import from_label_selector

UNSELECTED: Final = "`selector` does not match template `labels`"
_PERCENT_TEXT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)
_IS_PERCENT: Final = re.compile("[0-9]+%").fullmatch


@attrs.frozen
class WorkloadWording:
    """The wording of the rules for a kind.

    Attributes:
        empty: the kind in the message about an empty selector; empty: it is allowed.
        bad: the message about an unreadable selector; None: no message.
        named: the kind in the text about deadlines.
    """

    empty: str = ""
    bad: str | None = "invalid label selector"
    named: str = "ReplicaSet"


WORKLOADS: Final[Mapping[str, WorkloadWording]] = {
    "Deployment": WorkloadWording("deployment"),
    "ReplicaSet": WorkloadWording("deployment"),
    "ReplicationController": WorkloadWording(),
    "StatefulSet": WorkloadWording("statefulset", "", "StatefulSet"),
    "DaemonSet": WorkloadWording("daemonset", None, "DaemonSet"),
}


def validate_workload(obj: Obj) -> list[FieldError]:
    """The broken rules of the spec of one of these kinds."""
    return check(obj["kind"], obj["spec"], "spec", **_OWN)


def _later(at: ValuePlace, _: str) -> BrokenRules:
    fits = at.value is None or at.value > (at.outer.get("minReadySeconds") or 0)
    return [] if fits else [invalid(at.path, at.value, "must be greater than minReadySeconds")]


def _selector(at: ValuePlace, kind: str) -> list[FieldError]:
    """Check the selector, and the template unless the selector is unreadable."""
    spec, rules = at.value, WORKLOADS[kind]
    selector, path = spec.get("selector"), "spec.selector"
    template = _as_made(kind, spec)
    labels = as_given(section(template, "metadata"), "labels")
    errors: list[FieldError] = []
    if kind == "ReplicationController":
        if spec.get("template") is None:
            return [required(path)] * (not selector) + [required("spec.template")]
        if not selector:
            errors.append(required(path))
        elif not selector.items() <= (labels or {}).items():
            errors.append(invalid("spec.template.metadata.labels", labels, UNSELECTED))
        return errors + _template(rules, template)
    selector_errors = label_selector(selector, path)
    empty = selector is not None and not (
        selector.get("matchLabels") or selector.get("matchExpressions")
    )
    hollow = [invalid(path, {}, f"empty selector is invalid for {rules.empty}")] if empty else []
    if selector is None and kind != "DaemonSet":
        errors.append(required(path))
    errors += selector_errors
    if kind != "DaemonSet":
        errors += hollow
    fits = empty or (selector is not None and selects(selector, labels or {}))
    if fits is None:
        if rules.bad is None:
            return errors + _template(rules, template)
        return [*errors, invalid(path, in_order(selector or {}), rules.bad)]
    if not fits:
        errors.append(invalid("spec.template.metadata.labels", labels, UNSELECTED))
    if kind == "DaemonSet":
        errors += hollow
    return errors + _template(rules, template)


def _as_made(kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pod template; that of a StatefulSet as its controller fills it in."""
    template = section(spec, "template")
    if kind != "StatefulSet":
        return template
    pod = {**section(template, "spec"), "subdomain": "", "hostname": ""}
    templates = listed(spec, "volumeClaimTemplates")
    claims = [section(each, "metadata").get("name") or "" for each in templates]
    if claims:
        pod["volumes"] = with_claims(pod, {name: name for name in claims})
    return {**template, "spec": pod}


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool | None:
    """Whether a label selector selects labels; None if it cannot be read."""
    try:
        return from_label_selector(selector).matches(labels)
    except InvalidSelector:
        return None


def _template(rules: WorkloadWording, template: Mapping[str, Any]) -> list[FieldError]:
    pod = section(template, "spec")
    errors = validate_template(template, "spec.template")
    if pod.get("restartPolicy") != "Always":
        path = "spec.template.spec.restartPolicy"
        errors.append(not_supported(path, pod.get("restartPolicy"), ("Always",)))
    if pod.get("activeDeadlineSeconds") is not None:
        text = f"activeDeadlineSeconds in {rules.named} is not Supported"
        errors.append(forbidden("spec.template.spec.activeDeadlineSeconds", text))
    return errors


def validate_template(template: Mapping[str, Any], path: str) -> list[FieldError]:
    """The broken rules of a template of pods."""
    meta, spec = section(template, "metadata"), section(template, "spec")
    return [
        *validate_labels(meta.get("labels"), f"{path}.labels"),
        *validate_annotations(meta.get("annotations"), f"{path}.annotations"),
        *validate_pod_spec(spec, f"{path}.spec"),
    ]


def in_order(selector: Mapping[str, Any]) -> Obj:
    """A label selector with its fields in Go's order."""
    ordered: Obj = {name: selector[name] for name in ("matchLabels",) if selector.get(name)}
    expressions = [
        {name: each[name] for name in ("key", "operator", "values") if name in each}
        for each in listed(selector, "matchExpressions")
    ]
    return ordered | ({"matchExpressions": expressions} if expressions else {})


def label_selector(selector: Mapping[str, Any] | None, path: str) -> list[FieldError]:
    """The broken rules of a label selector; None selects nothing and is fine."""
    return check("LabelSelector", selector, path)


# ---- ways to update


def _amount(value: Any) -> int:
    if isinstance(value, str):
        return int(value[:-1]) if _IS_PERCENT(value) else 0
    return int(value or 0)


def _int_or_percent(value: Any, path: str) -> list[FieldError]:
    if isinstance(value, str):
        return [] if _IS_PERCENT(value) else [invalid(path, value, _PERCENT_TEXT)]
    return non_negative(path, value)


def _not_over_all(value: Any, path: str) -> list[FieldError]:
    over = isinstance(value, str) and _amount(value) > 100
    return [invalid(path, value, "must not be greater than 100%")] if over else []


def _deployment_strategy(at: ValuePlace, _: str) -> BrokenRules:
    strategy = at.value or {}
    path, rolling = "spec.strategy.rollingUpdate", strategy.get("rollingUpdate")
    if strategy.get("type") == "Recreate":
        text = "may not be specified when strategy `type` is 'Recreate'"
        return [] if rolling is None else [forbidden(path, text)]
    if strategy.get("type") != "RollingUpdate":
        return [_unknown("spec.strategy", strategy, "Recreate")]
    most, surge = ((rolling or {}).get(name) for name in ("maxUnavailable", "maxSurge"))
    errors = _int_or_percent(most, f"{path}.maxUnavailable")
    errors += _int_or_percent(surge, f"{path}.maxSurge")
    if not _amount(most) and not _amount(surge):
        errors.append(invalid(f"{path}.maxUnavailable", most, "may not be 0 when `maxSurge` is 0"))
    return errors + _not_over_all(most, f"{path}.maxUnavailable")


def _unknown(path: str, strategy: Mapping[str, Any], other: str) -> FieldError:
    return not_supported(path, internal("Strategy", strategy), (other, "RollingUpdate"))


def _daemon_strategy(at: ValuePlace, _: str) -> BrokenRules:
    strategy = at.value or {}
    path, rolling = "spec.updateStrategy.rollingUpdate", strategy.get("rollingUpdate")
    if strategy.get("type") == "OnDelete":
        return []
    if strategy.get("type") != "RollingUpdate":
        return [_unknown("spec.updateStrategy", strategy, "OnDelete")]
    values = {name: (rolling or {}).get(name) for name in ("maxUnavailable", "maxSurge")}
    errors = [
        error
        for check in (_int_or_percent, _not_over_all)
        for name, value in values.items()
        for error in check(value, f"{path}.{name}")
    ]
    most, surge = map(_amount, values.values())
    if most and surge:
        text = "may not be set when maxUnavailable is non-zero"
        errors.append(invalid(f"{path}.maxSurge", values["maxSurge"], text))
    elif not most and not surge:
        errors.append(required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return errors


def _set_strategy(at: ValuePlace, _: str) -> BrokenRules:
    strategy, path, errors = at.value or {}, at.path, list[FieldError]()
    rolling = strategy.get("rollingUpdate")
    shown = internal("SetStrategy", strategy)
    if strategy.get("type") == "RollingUpdate":
        partition = section(strategy, "rollingUpdate").get("partition")
        errors += non_negative(f"{path}.rollingUpdate.partition", partition)
    elif strategy.get("type") != "OnDelete":
        errors.append(invalid(path, shown, "must be 'RollingUpdate' or 'OnDelete'"))
    elif rolling is not None:
        text = "only allowed for updateStrategy 'RollingUpdate'"
        errors.append(invalid(f"{path}.rollingUpdate", shown["RollingUpdate"], text))
    return errors


_OWN: Final[Mapping[str, Check]] = {
    "selector": _selector,
    "later": _later,
    "deployment": _deployment_strategy,
    "set": _set_strategy,
    "daemons": _daemon_strategy,
    "claimed": claimed,
}
