"""Keeps certificates in a Secret, and names the authority to trust to the API server.

`ensure_certificates` and `inject` serve an installer, which runs once, and the `CertificateKeeper`
of `keeper`: both find the same Secret and leave alone what is good.
"""

from __future__ import annotations

import base64
import binascii
import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import attrs

from kueuelib.api.kinds import API_SERVICES, SECRETS
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.errors import (
    Conflict,
    Forbidden,
    NotFound,
)
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.webhook.certs import (
    FIELDS,
    Certificates,
    Names,
    host_names,
    renewed,
    replacing,
)

ATTEMPTS = 5
"""How often a write is tried that conflicts with other writes."""


@attrs.frozen
class Trusting:
    """An object that carries a `caBundle` for our servers.

    Attributes:
        resource: a webhook configuration's kind, or that of CRDs or APIServices.
        name: of the object.
        optional: whether the rights to it may be missing.
        path: of a CRD, where its conversion is served, at the address of the webhooks; empty to
            leave alone where it leads.
    """

    resource: Resource
    name: str
    optional: bool = False
    path: str = ""


async def ensure_certificates(
    client: Client,
    secret: ObjectKey,
    names: Names,
    *,
    clock: Clock = SYSTEM_CLOCK,
    organisation: str = "kueuelib",
    labels: Mapping[str, str] | None = None,
    in_use: Certificates | None = None,
) -> Certificates:
    """The certificates in the Secret, which is created, completed or renewed if needed.

    Args:
        client: reads and writes the Secret; its namespace must exist.
        secret: where certificates are kept.
        names: what the server must be called; names in the present certificate are kept.
        clock: wall-clock time.
        organisation: of the certificates' subjects.
        labels: of a Secret that is created.
        in_use: those that the server has. If the Secret has lost them, their authority is trusted
            beside the new one until that is replaced, so that no replica is locked out.

    Raises:
        ApiError: the Secret can be neither read nor written.
        Conflict: others kept writing it at the same time.
    """
    for _ in range(ATTEMPTS):
        try:
            stored: Obj | None = await client.get(SECRETS, secret)
        except NotFound:
            stored = None
        present = None if stored is None else from_secret(stored)
        wanted = renewed(present, names, clock.now(), organisation=organisation)
        if wanted == present:
            return wanted
        if in_use is not None and (present is None or wanted.ca_key != present.ca_key):
            wanted = replacing(wanted, in_use)
        data = to_data(wanted)
        try:
            if stored is None:
                meta = {"namespace": secret.namespace, "name": secret.name, "labels": labels or {}}
                await client.create(
                    SECRETS,
                    {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data},
                )
            else:
                merged = {**(stored.get("data") or {}), **data}
                await client.replace(SECRETS, {**stored, "data": merged})
        except Conflict:
            continue
        return wanted
    raise Conflict(f"Secret {secret}: others keep writing it")


def from_secret(secret: Mapping[str, Any]) -> Certificates | None:
    """The certificates of a raw Secret; None when some are missing."""
    data = secret.get("data") or {}
    try:
        parts = [base64.b64decode(data.get(field) or "", validate=True) for field in FIELDS]
    except binascii.Error:
        return None
    return Certificates(*parts) if all(parts) else None


def to_data(certificates: Certificates) -> dict[str, str]:
    """The `data` of a Secret with these certificates."""
    parts = (certificates.ca_cert, certificates.ca_key, certificates.tls_cert, certificates.tls_key)
    return {
        field: base64.b64encode(part).decode() for field, part in zip(FIELDS, parts, strict=True)
    }


def with_bundle(obj: Obj, ca_cert: bytes) -> Obj:
    """An object that trusts an authority: a copy, or `obj` if it does.

    CRDs without conversion webhook are left alone, and APIServices that skip verification.

    Args:
        obj: a webhook configuration, a CRD or an APIService.
        ca_cert: the authority, PEM.
    """
    bundle = base64.b64encode(ca_cert).decode()
    if all(each.get("caBundle") == bundle for each in _callers(obj)):
        return obj  # found out without a copy: CRDs are large, and looked at every minute
    made = copy.deepcopy(obj)
    for client_config in _client_configs(made):
        client_config["caBundle"] = bundle
    return made


def _led(obj: Obj, places: Sequence[Obj], path: str) -> Obj:
    """A CRD whose conversion is served at the only place to which the webhooks lead; `obj` if it
    is, or if they do not agree on one.
    """
    if not path or len(places) != 1 or not _callers(obj):
        return obj
    made: Obj = copy.deepcopy(obj)
    for config in _client_configs(made):
        if _place(config) != places[0] or _path(config) != path:
            place = copy.deepcopy(places[0])
            if "url" in place:
                place["url"] += path
            else:
                place["service"]["path"] = path
            kept = {key: one for key, one in config.items() if key not in ("url", "service")}
            made["spec"]["conversion"]["webhook"]["clientConfig"] = {**kept, **place}
            return made
    return obj


def _place(config: Mapping[str, Any]) -> Obj:
    """Where a `clientConfig` leads, without the path; empty if nowhere."""
    if config.get("url"):
        parts = urlsplit(config["url"])
        return {"url": f"{parts.scheme}://{parts.netloc}"}
    service = config.get("service")
    return {"service": {"port": 443, **service, "path": ""}} if service else {}


def _path(config: Mapping[str, Any]) -> str:
    if config.get("url"):
        return urlsplit(str(config["url"])).path
    return str((config.get("service") or {}).get("path") or "")


def _callers(obj: Obj) -> list[Mapping[str, Any]]:
    """The parts that carry a bundle, as they are."""
    if "webhooks" in obj:
        return [each.get("clientConfig") or {} for each in obj["webhooks"] or ()]
    if obj.get("kind") == API_SERVICES.kind:
        spec = obj["spec"]
        return [] if spec.get("insecureSkipTLSVerify") else [spec]
    conversion = (obj.get("spec") or {}).get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return []
    return [(conversion.get("webhook") or {}).get("clientConfig") or {}]


def _hosts(obj: Obj) -> set[str]:
    """The hosts that an API server calls, by a URL or as a Service."""
    hosts = set()
    for each in _callers(obj):
        service = each.get("service") or {}
        if host := urlsplit(each.get("url") or "").hostname:
            hosts.add(host)
        elif service.get("name") and service.get("namespace"):
            hosts.add(f"{service['name']}.{service['namespace']}.svc")
    return hosts


def _client_configs(obj: Obj) -> list[dict[str, Any]]:
    """The parts that carry a bundle; those that are missing are added."""
    if "webhooks" in obj:
        return [webhook.setdefault("clientConfig", {}) for webhook in obj["webhooks"] or ()]
    if obj.get("kind") == API_SERVICES.kind:
        return [obj["spec"]]
    conversion = (obj.get("spec") or {}).get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return []
    return [conversion.setdefault("webhook", {}).setdefault("clientConfig", {})]


@attrs.frozen
class Injected:
    """What `inject` has found.

    Attributes:
        written: the objects that did not trust the authority.
        missing: the objects that do not exist, and the optional ones that we have no right to.
        called: the hosts that the others call, which the server's certificate has to name.
    """

    written: list[str]
    missing: list[str]
    called: Names


async def inject(client: Client, trusting: Iterable[Trusting], ca_cert: bytes) -> Injected:
    """Write the authority into every object; objects that have it are only read.

    Conversions are led to where the webhooks before them lead, if these agree.

    Raises:
        ApiError: one cannot be read or written.
    """
    written, missing, hosts = list[str](), list[str](), set[str]()
    places = list[Obj]()
    for target in trusting:
        try:
            called, wrote = await _inject_one(client, target, ca_cert, places)
        except (NotFound, Forbidden) as error:
            if isinstance(error, Forbidden) and not target.optional:
                raise
            missing.append(path_of(target))
        else:
            hosts |= called
            if wrote:
                written.append(path_of(target))
    return Injected(written, missing, host_names(hosts))


def path_of(target: Trusting) -> str:
    """What an object is called in the log."""
    return f"{target.resource.plural}/{target.name}"


async def _inject_one(
    client: Client, target: Trusting, ca_cert: bytes, places: list[Obj]
) -> tuple[set[str], bool]:
    """Writes the authority into one object; returns the hosts it calls, and whether it wrote. The
    places to which webhooks lead are added to those that are known.
    """
    key, hosts = ObjectKey("", target.name), set[str]()
    for attempt in range(ATTEMPTS):
        obj = await client.get(target.resource, key)
        wanted = with_bundle(_led(obj, places, target.path), ca_cert)
        hosts = _hosts(wanted)
        for config in obj.get("webhooks") or ():
            place = _place(config.get("clientConfig") or {})
            if place and place not in places:
                places.append(place)
        if wanted is obj:
            break
        try:
            await client.replace(target.resource, wanted)
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
            continue
        return hosts, True
    return hosts, False
