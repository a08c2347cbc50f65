"""Keeps certificates in a Secret, renews them, and makes the API server trust their authority.

`ensure_certificates` and `inject` serve an installer, which runs once, and the `CertificateKeeper`
of running servers: both find the same Secret and leave alone what is good.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import random
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import anyio
import attrs

from kueuelib.api.kinds import API_SERVICES, SECRETS
from kueuelib.api.meta import Obj, ObjectKey, Resource, copied
from kueuelib.errors import ApiError, ConfigError, Conflict, Forbidden, NotFound, TransportError
from kueuelib.machinery.backoff import Backoff
from kueuelib.machinery.store import Delta
from kueuelib.runtime.certificates import (
    FIELDS,
    Certificates,
    ServerNames,
    host_names,
    load,
    renewed,
    replacing,
)
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.steps import lasting_tasks

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
    names: ServerNames,
    *,
    clock: Clock = SYSTEM_CLOCK,
    organisation: str = "kueuelib",
    in_use: Certificates | None = None,
) -> Certificates:
    """The certificates in the Secret, which is created, completed or renewed if needed.

    Args:
        client: reads and writes the Secret; its namespace must exist.
        secret: where certificates are kept.
        names: what the server must be called; names in the present certificate are kept.
        clock: wall-clock time.
        organisation: of the certificates' subjects.
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
                meta = {"namespace": secret.namespace, "name": secret.name}
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
    made: Obj = copied(obj)
    for client_config in _client_configs(made):
        client_config["caBundle"] = bundle
    return made


def _led(obj: Obj, places: Sequence[Obj], path: str) -> Obj:
    """A CRD whose conversion is served at the only place to which the webhooks lead; `obj` if it
    is, or if they do not agree on one.
    """
    if not path or len(places) != 1 or not _callers(obj):
        return obj
    made: Obj = copied(obj)
    for config in _client_configs(made):
        if _place(config) != places[0] or _path(config) != path:
            place = copied(places[0])
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
    called: ServerNames


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


# ---- keeps the certificate of running webhook servers, and the trust of the API server in it -----

CHECK_PERIOD = 60.0
"""Seconds between two looks at the Secret and the objects that trust it, if nothing changes."""
COLLECTING = 0.1
"""Seconds to wait for further changes, up to four times as long: replicas take turns."""
CONTEST = 3
"""Repairs of the same object, one after the other, that show that another program writes it."""
MISSING_PERIOD = 2.0
"""Seconds between two looks for objects that are to trust it and do not exist."""


def following(client: Client, resource: Resource, key: ObjectKey, clock: Clock) -> Informer:
    """An informer of the changes of one object.

    Without the right to watch, it keeps retrying.

    Args:
        client: lists and watches.
        resource: the kind.
        key: of the object.
        clock: time.
    """
    return Informer(
        client,
        resource,
        namespace=key.namespace,
        field_selector=f"metadata.name={key.name}",
        metadata_only=True,
        clock=clock,
    )


class CertificateKeeper:
    """Keeps TLS contexts supplied with good certificates; a part of a `Manager`.

    Every minute, and when the Secret or one of the objects changes, it reads the Secret, renews
    what is about to end, repairs bundles and the addresses of conversions, and loads what changed
    into the contexts; nothing is restarted. Objects that do not exist, or that we have no right to,
    are looked for every two seconds. The pauses between repairs grow to about 45 seconds, so that
    two programs that write the same fields do not keep the API server busy.

    Args:
        client: reads and writes the Secret and the objects that trust it.
        contexts: of the servers.
        secret: where certificates are kept.
        names: host names and addresses under which the API server calls, besides those in URLs.
        trusting: objects that carry the `caBundle`.
        clock: time.
        organisation: of the certificates' subjects.
        period: seconds between two looks.
    """

    def __init__(
        self,
        client: Client,
        contexts: Iterable[ssl.SSLContext],
        secret: ObjectKey,
        names: ServerNames | Iterable[str],
        trusting: Iterable[Trusting] = (),
        *,
        clock: Clock = SYSTEM_CLOCK,
        organisation: str = "kueuelib",
        period: float = CHECK_PERIOD,
    ) -> None:
        self.ready = False
        self._client = client
        self._contexts = tuple(contexts)
        self._secret = secret
        self._names = names if isinstance(names, ServerNames) else host_names(names)
        self._trusting = tuple(trusting)
        self._clock = clock
        self._organisation = organisation
        self._period = period
        self._loaded: Certificates | None = None
        self._repaired: list[str] = []
        self._repairs: Counter[str] = Counter()
        self._missing: list[str] = []
        self._poked = asyncio.Event()
        self._log = get_logger("certificates")

    def poke(self, _: Delta[Obj] | None = None) -> None:
        """Look again now; usable as an informer's handler."""
        self._poked.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Keep certificates until cancelled; `ready` is called once the contexts have one."""
        async with lasting_tasks("certificates") as tasks:
            for informer in self._watching():
                informer.add_handler(self.poke)
                tasks.start_soon(informer.run, name=f"certificates-{informer.resource.plural}")
            tasks.start_soon(self._keep, ready)

    def _watching(self) -> Iterator[Informer]:
        """Informers of the Secret and of what has to trust it."""
        keys = [(one.resource, ObjectKey("", one.name)) for one in self._trusting]
        for resource, key in [(SECRETS, self._secret), *keys]:
            yield following(self._client, resource, key, self._clock)

    async def _keep(self, ready: Callable[[], None]) -> None:
        pauses = Backoff(base=0.5, cap=30.0, jitter=0.5)
        repairs = Backoff(base=0.5, cap=30.0, jitter=1.0)
        now = asyncio.get_running_loop().time
        due = now()
        while True:
            everything = self._loaded is None or self._poked.is_set() or now() >= due
            self._poked.clear()
            try:
                await (self._look() if everything else self._look_for_the_missing())
            except (ApiError, TransportError, ConfigError) as error:
                pause = pauses.next(self._clock.monotonic(), random.random())
                self._log.warning("certificates cannot be kept", error=with_fix(error))
                due = now()
                await self._clock.sleep(pause)
                continue
            pauses.reset()
            if everything:
                due = now() + self._period
            if not self.ready:
                self.ready = True
                ready()
            elif self._repaired:
                pause = repairs.next(self._clock.monotonic(), random.random())
                if repairs.attempts == 1:
                    self._repairs.clear()
                self._report()
                await self._clock.sleep(pause)
            self._repaired = []
            left = max(due - now(), 0.0)
            with anyio.move_on_after(min(left, MISSING_PERIOD) if self._missing else left):
                await self._poked.wait()
                await anyio.sleep(COLLECTING * (1.0 + 3.0 * random.random()))

    def _report(self) -> None:
        self._repairs.update({*self._repaired})
        contested = [one for one in self._repaired if self._repairs[one] >= CONTEST]
        self._log.info("certificate restored", objects=self._repaired)
        if contested:
            self._log.warning(
                "another program keeps writing the certificate",
                objects=contested,
                fix="let only one program keep it",
            )

    async def _look(self) -> None:
        certificates, complete = await self._ensured(), False
        while not complete:
            # First those who trust, then the server: a new authority is known before it is used.
            complete = await self._give(self._trusting, certificates)
            if not complete:
                certificates = await self._ensured()
        if certificates != self._loaded:
            for context in self._contexts:
                load(context, certificates)
            self._log.info("certificate loaded", secret=str(self._secret))
            self._repaired.append(f"{SECRETS.plural}/{self._secret.name}")
            self._loaded = certificates

    async def _ensured(self) -> Certificates:
        return await ensure_certificates(
            self._client,
            self._secret,
            self._names,
            clock=self._clock,
            organisation=self._organisation,
            in_use=self._loaded,
        )

    async def _look_for_the_missing(self) -> None:
        if self._loaded is not None:
            missing = [one for one in self._trusting if path_of(one) in self._missing]
            if not await self._give(missing, self._loaded):
                self.poke()

    async def _give(self, trusting: Iterable[Trusting], certificates: Certificates) -> bool:
        """Makes objects trust our authority, and says which ones cannot; returns whether we knew
        all the names under which they call us.
        """
        injected = await inject(self._client, trusting, certificates.ca_cert)
        self._repaired += injected.written
        if injected.missing != self._missing:
            self._missing = injected.missing
            if injected.missing:
                self._log.warning(
                    "the objects that should trust our certificate are missing",
                    missing=injected.missing,
                )
        known = self._names.covers(injected.called)
        here = f".{self._secret.namespace}.svc"
        fresh = sorted(injected.called.hosts - self._names.hosts)
        if elsewhere := [each for each in fresh if each.endswith(".svc") and here not in each]:
            namespaces = sorted({each.split(".")[-2] for each in elsewhere})
            self._log.warning(
                "the API server calls our webhooks through a Service in another namespace",
                services=elsewhere,
                secret=str(self._secret),
                fix=f"run it with --namespace {' or '.join(namespaces)}: that of Secret and Lease, "
                "which all replicas share",
            )
        self._names |= injected.called
        return known
