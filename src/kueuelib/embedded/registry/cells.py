"""The cells and columns of tables: each function reads one from a raw object."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from kueuelib.api.meta import Obj, find_condition, is_true, parse_time
from kueuelib.api.phrases import duration
from kueuelib.embedded.builtins.fields import section
from kueuelib.embedded.registry.kinds import PrinterColumn
from kueuelib.machinery.selectors import field_of

# ---- the part of JSONPath that printer columns use -----------------------------------------------
# For example `.a.b[0].c`, `[*]`, `[?(@.type=="x")]`, `['a.b']`.

Step = Callable[[Any], list[Any]]

_TOKEN = re.compile(
    r"""
    \.(?P<field>(?:[\w$/-]|\\\.)+) |
    \[(?P<index>-?\d+)\] |
    \[(?P<all>\*)\] | \.(?P<each>\*) |
    \[(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\] |
    \[\?\(\s*@\.(?P<left>[\w.-]+)\s*(?P<op>==|!=)\s*
        (?P<right>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|true|false|-?\d+)\s*\)\]
    """,
    re.VERBOSE,
)


class JsonPath:
    """A compiled path.

    Raises:
        ValueError: on construction, if the path uses unsupported syntax.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        body = text.strip().removeprefix("{").removesuffix("}").removeprefix("$")
        if body == ".":
            body = ""
        if body and body[0] not in ".[":
            body = f".{body}"
        self._steps: list[Step] = []
        position = 0
        while position < len(body):
            token = _TOKEN.match(body, position)
            if token is None:
                raise ValueError(f"unsupported JSONPath {text!r}")
            self._steps.append(_step(token))
            position = token.end()

    def find(self, obj: Any) -> list[Any]:
        """Every value at the path."""
        values = [obj]
        for step in self._steps:
            values = [inner for value in values for inner in step(value)]
        return values


def _step(token: re.Match[str]) -> Step:
    if token["field"] is not None:
        return _member(token["field"].replace("\\.", "."))
    if token["quoted"] is not None:
        return _member(_unquoted(token["quoted"]))
    if token["index"] is not None:
        return _at(int(token["index"]))
    if token["left"] is not None:
        return _filter(token["left"].split("."), token["op"] == "==", _literal(token["right"]))
    return _every


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def _literal(text: str) -> Any:
    if text[0] in "'\"":
        return _unquoted(text)
    return text == "true" if text in ("true", "false") else int(text)


def _member(name: str) -> Step:
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else []


def _at(index: int) -> Step:
    def step(value: Any) -> list[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            return [value[index]]
        return []

    return step


def _every(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list) else []


def _filter(path: list[str], equal: bool, right: Any) -> Step:
    def holds(item: Any) -> bool:
        for part in path:
            if not isinstance(item, dict) or part not in item:
                return False
            item = item[part]
        return bool(item == right) is equal

    return lambda value: [item for item in value if holds(item)] if isinstance(value, list) else []


# --------------------------------------------------------------------------------------------------

NONE = "<none>"
UNKNOWN = "<unknown>"
_JOB_STATES = ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet")


def since(text: str | None, now: float) -> str:
    """The time between an RFC 3339 text and now."""
    if not text:
        return UNKNOWN
    try:
        return duration(now - parse_time(text))
    except ValueError:
        return "<invalid>"


def ago(*paths: str) -> Callable[[Obj, float], str]:
    """The time since the first of these fields that is present."""
    return lambda obj, now: since(next(filter(None, (field_of(obj, x) for x in paths)), None), now)


def flat(obj: Obj, path: str) -> list[Any]:
    """What is at the end of a path, through lists and what is in them."""
    values: list[Any] = [obj]
    for step in path.split("."):
        inner = [each[step] for each in values if each.get(step) is not None]
        values = [x for each in inner for x in (each if isinstance(each, list) else (each,))]
    return values


def every(path: str) -> Callable[[Obj, float], str]:
    """All texts at the end of a path."""
    return lambda obj, _: ",".join(map(str, flat(obj, path)))


def some(path: str, absent: str) -> Callable[[Obj, float], str]:
    """The first few texts at the end of a path."""
    return lambda obj, _: listed(flat(obj, path)) or absent


def count(path: str) -> Callable[[Obj, float], int]:
    """How many items there are at the end of a path."""
    return lambda obj, _: len(flat(obj, path))


def flag(path: str, form: str = "") -> Callable[[Obj, float], bool | str]:
    """Whether a field is true, maybe as text."""
    return lambda obj, _: str(any(flat(obj, path))) if form else any(flat(obj, path))


def labels(path: str) -> Callable[[Obj, float], str]:
    """A map of texts."""
    return lambda obj, _: pairs(section(obj, *path.split(".")))


def pairs(labels: Mapping[str, str]) -> str:
    """Labels as `a=b,c=d`."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NONE


def selector_text(selector: Mapping[str, Any]) -> str:
    """A selector in the syntax of URLs; that of a ReplicationController is a plain map."""
    whole = selector.keys() & {"matchLabels", "matchExpressions"}
    labels = (selector.get("matchLabels") or {}) if whole else selector
    terms = [(key, f"{key}={value}") for key, value in labels.items()]
    for each in selector.get("matchExpressions") or () if whole else ():
        key, values = each["key"], ",".join(sorted(each.get("values") or ()))
        forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        terms.append((key, forms.get(each["operator"], f"!{key}")))
    return ",".join(text for _, text in sorted(terms, key=lambda term: term[0]))


def selector(obj: Obj, _: float) -> str:
    """The selector of an object."""
    return selector_text(section(obj, "spec", "selector")) or NONE


def slashed(first: str, second: str, otherwise: str = "") -> Callable[[Obj, float], str]:
    """The texts at two paths with a slash between them."""

    def read(obj: Obj, _: float) -> str:
        texts = field_of(obj, first), field_of(obj, second)
        return "/".join(texts) if any(texts) else otherwise

    return read


def volume_phase(obj: Obj, _: float) -> str:
    """The phase of a volume, or of a claim for one."""
    return (
        "Terminating" if "deletionTimestamp" in obj["metadata"] else field_of(obj, "status.phase")
    )


def modes(path: str) -> Callable[[Obj, float], str]:
    """Access modes by their initials."""

    def read(obj: Obj, _: float) -> str:
        outer, name = path.split(".")
        modes = set((obj.get(outer) or {}).get(name) or ())
        short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX"}
        short["ReadWriteOncePod"] = "RWOP"
        return ",".join(text for mode, text in short.items() if mode in modes)

    return read


def subjects(kind: str) -> Callable[[Obj, float], str]:
    """The subjects of a binding that are of a kind."""

    def read(obj: Obj, _: float) -> str:
        members = [each for each in obj.get("subjects") or () if each.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{each.get('namespace', '')}/{each.get('name')}" for each in members)
        return ", ".join(str(each.get("name")) for each in members)

    return read


def listed(texts: Sequence[str], limit: int = 3) -> str:
    """The first few texts, and the number of the others."""
    more = f" + {len(texts) - limit} more..." if len(texts) > limit else ""
    return ",".join(texts[:limit]) + more


def slice_ports(obj: Obj, _: float) -> str:
    """The ports of an EndpointSlice."""
    ports = [str(each.get("port", "*") or "") for each in obj.get("ports") or ()]
    return listed(ports) or "<unset>"


def balanced(obj: Obj, _: float) -> str:
    """The addresses of a load balancer."""
    ingress = section(obj, "status", "loadBalancer").get("ingress") or ()
    return ",".join(str(each.get("ip") or each.get("hostname") or "") for each in ingress)


def external(obj: Obj, _: float) -> str:
    """The external addresses of a Service."""
    spec = section(obj, "spec")
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    addresses = ",".join(spec.get("externalIPs") or ())
    if spec.get("type") == "LoadBalancer":
        return balanced(obj, 0) or addresses or "<pending>"
    return addresses or NONE


def data(obj: Obj, _: float) -> int:
    """How many entries a ConfigMap or a Secret has."""
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def pod_ready(obj: Obj, _: float) -> str:
    """How many containers are ready, of how many."""
    ready = sum(map(bool, flat(obj, "status.containerStatuses.ready")))
    return f"{ready}/{len(flat(obj, 'spec.containers'))}"


def pod_status(obj: Obj, _: float) -> str:
    """The phase of a pod, or the reason why it does not run."""
    status = section(obj, "status")
    reason = str(status.get("reason") or status.get("phase") or "")
    scheduled = find_condition(status.get("conditions"), "PodScheduled")
    if scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    for state in reversed(status.get("containerStatuses") or []):
        waiting = (state.get("state") or {}).get("waiting") or {}
        ended = (state.get("state") or {}).get("terminated") or {}
        if waiting.get("reason"):
            reason = str(waiting["reason"])
        elif ended.get("reason"):
            reason = str(ended["reason"])
        elif ended:
            reason = f"ExitCode:{ended.get('exitCode', 0)}"
    if obj["metadata"].get("deletionTimestamp") and status.get("phase") not in {
        "Failed",
        "Succeeded",
    }:
        reason = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return reason


def pod_restarts(obj: Obj, _: float) -> str:
    """How often the containers were started again."""
    return str(sum(flat(obj, "status.containerStatuses.restartCount")))


def gates(obj: Obj, _: float) -> str:
    """How many readiness gates there are."""
    return str(len(flat(obj, "spec.readinessGates")) or NONE)


def job_status(obj: Obj, _: float) -> str:
    """What a Job is doing."""
    held = [name for name in _JOB_STATES if is_true(obj, name)]
    ended = [name for name in held if name in ("Complete", "Failed")]
    if ended or not obj["metadata"].get("deletionTimestamp"):
        return (held or ["Running"])[0]
    return "Terminating"


def job_completions(obj: Obj, _: float) -> str:
    """How many pods of a Job succeeded, of how many."""
    spec, status = section(obj, "spec"), section(obj, "status")
    done = status.get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def job_duration(obj: Obj, now: float) -> str:
    """How long a Job has taken."""
    status = section(obj, "status")
    if not status.get("startTime"):
        return ""
    end = status.get("completionTime")
    until = parse_time(end) if end else now
    return duration(until - parse_time(status["startTime"]))


def node_status(obj: Obj, _: float) -> str:
    """Whether a node is ready, and cordoned."""
    conditions = section(obj, "status").get("conditions")
    ready = find_condition(conditions, "Ready").get("status")
    text = "Ready" if ready == "True" else "NotReady" if ready else "Unknown"
    return f"{text},SchedulingDisabled" if section(obj, "spec").get("unschedulable") else text


def node_roles(obj: Obj, _: float) -> str:
    """The roles of a node, from its labels."""
    prefix = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    return ",".join(roles) or NONE


def node_address(type_: str) -> Any:
    """The address of a node of some type."""

    def read(obj: Obj, _: float) -> str:
        for each in section(obj, "status").get("addresses") or []:
            if each.get("type") == type_:
                return str(each.get("address"))
        return NONE

    return read


def number(path: str) -> Callable[[Obj, float], int]:
    """A number that is zero if it is absent."""
    return lambda obj, _: int(field_of(obj, path) or 0)


def ingress_ports(obj: Obj, _: float) -> str:
    """The ports of an Ingress."""
    return "80, 443" if obj["spec"].get("tls") else "80"


def event_message(obj: Obj, _: float) -> str:
    """The message of an event."""
    return str(obj.get("message") or "").strip()


def event_object(obj: Obj, _: float) -> str:
    """The object of an event."""
    ref = section(obj, "involvedObject")
    return "/".join([str(ref.get("kind", "")).lower(), *filter(None, [ref.get("name")])])


def event_source(obj: Obj, _: float) -> str:
    """Who reported an event."""
    source = section(obj, "source")
    component = source.get("component") or obj.get("reportingComponent") or ""
    return f"{component}, {source['host']}" if source.get("host") else str(component)


def event_count(obj: Obj, _: float) -> int:
    """How often an event was seen."""
    series = section(obj, "series")
    return int(series.get("count") or obj.get("count") or 1)


def ports(obj: Obj, _: float) -> str:
    """The ports of a Service."""
    ports = section(obj, "spec").get("ports") or []
    texts = [
        f"{port.get('port')}{':' if port.get('nodePort') else ''}{port.get('nodePort') or ''}"
        f"/{port.get('protocol', 'TCP')}"
        for port in ports
    ]
    return ",".join(texts) or NONE


def replicas_ready(obj: Obj, _: float) -> str:
    """How many replicas are ready, of how many."""
    ready = section(obj, "status").get("readyReplicas", 0)
    return f"{ready}/{(obj.get('spec') or {}).get('replicas', 1)}"


def endpoints(obj: Obj, _: float) -> str:
    """The first few addresses of Endpoints."""
    addresses = [
        address.get("ip", "") + (f":{port.get('port')}" if port else "")
        for subset in obj.get("subsets") or ()
        for port in subset.get("ports") or (None,)
        for address in subset.get("addresses") or ()
    ]
    return listed(addresses) or NONE


def quota(limits: str) -> Callable[[Obj, float], str]:
    """The usage of a ResourceQuota."""

    def read(obj: Obj, _: float) -> str:
        status = section(obj, "status")
        used = status.get("used") or {}
        parts = [
            f"{name}: {used.get(name, '0')}/{hard}"
            for name, hard in sorted((status.get("hard") or {}).items())
            if name.startswith("limits.") == bool(limits)
        ]
        return ", ".join(parts)

    return read


def last_schedule(obj: Obj, now: float) -> str:
    """The time since a CronJob last made a Job."""
    last = section(obj, "status").get("lastScheduleTime")
    return since(last, now) if last else NONE


# The columns that `kubectl get` shows for built-in kinds; NAME and AGE are those of every kind.
# They are data: `columns.txt` next to this module, whose head explains it.


def _read(text: str) -> Callable[[Obj, float], Any]:
    name, *arguments = shlex.split(text)
    if name.startswith("."):
        absent = arguments[0] if arguments else NONE
        return lambda obj, _: field_of(obj, name[1:]) or absent
    cell: Callable[..., Any] = globals()[name]
    return cell(*arguments) if arguments else cell


AGE: Final = PrinterColumn("Age", "string", ago("metadata.creationTimestamp"))
CREATED: Final = (PrinterColumn("Created At", "date", _read(".metadata.creationTimestamp")),)
"""The columns of a kind without its own."""
_POD: Final = tuple(
    PrinterColumn(name, "string", every(f"spec.template.spec.containers.{key}"), priority=1)
    for name, key in (("Containers", "name"), ("Images", "image"))
)
_SHARED: Final[Mapping[str, tuple[PrinterColumn, ...]]] = {
    "AGE": (AGE,),
    "CREATED": CREATED,
    "POD": _POD,
    "SELECTOR": (PrinterColumn("Selector", "string", selector, priority=1),),
}


def _columns(lines: list[str]) -> Iterator[PrinterColumn]:
    for line in lines:
        if line in _SHARED:
            yield from _SHARED[line]
            continue
        name, type_, text, *marks = (part.strip() for part in line.split(" | "))
        wide, _, form = "".join(marks).partition(" ")
        yield PrinterColumn(name, type_, _read(text), form, priority=int(wide == "wide"))


def _all() -> Iterator[tuple[str, tuple[PrinterColumn, ...]]]:
    text = files("kueuelib.embedded.registry").joinpath("columns.txt").read_text("ascii")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for paragraph in "\n".join(lines).replace("\n ", "\t").splitlines():
        kinds, *lines = paragraph.split("\t")
        yield from ((kind, tuple(_columns(lines))) for kind in kinds.split())


COLUMNS: Final[Mapping[str, tuple[PrinterColumn, ...]]] = dict(_all())
