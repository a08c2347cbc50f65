"""Keeps certificates in a Secret, and names the authority to trust to the API server.

`ensure_certificates` and `inject` serve an installer, which runs once, and `CertificateKeeper`,
which runs as long as the webhook server: both find the same Secret and leave alone what is good.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import copy
import random
import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import anyio
import attrs

from kueuelib.api.kinds import API_SERVICES, SECRETS
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.errors import (
    ApiError,
    ConfigError,
    Conflict,
    Forbidden,
    NotFound,
    TransportError,
)
from kueuelib.machinery.backoff import Backoff
from kueuelib.machinery.store import Delta
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.webhook.certs import (
    FIELDS,
    Certificates,
    Names,
    host_names,
    load,
    renewed,
)

ATTEMPTS = 5
"""How often a write is tried that conflicts with other writes."""
CHECK_PERIOD = 60.0
"""Seconds between two looks at the Secret and the objects that trust it."""
MISSING_PERIOD = 2.0
"""Seconds between two looks for objects that are to trust it and do not exist."""


@attrs.frozen
class Trusting:
    """An object that carries a `caBundle` for our servers.

    Attributes:
        resource: a webhook configuration's kind, or that of CRDs or APIServices.
        name: of the object.
        optional: whether the rights to it may be missing.
    """

    resource: Resource
    name: str
    optional: bool = False


async def ensure_certificates(
    client: Client,
    secret: ObjectKey,
    names: Names,
    *,
    clock: Clock = SYSTEM_CLOCK,
    organisation: str = "kueuelib",
    labels: Mapping[str, str] | None = None,
) -> Certificates:
    """The certificates in the Secret, which is created, completed or renewed if needed.

    Args:
        client: reads and writes the Secret; its namespace must exist.
        secret: where certificates are kept.
        names: what the server must be called; names in the present certificate are kept.
        clock: wall-clock time.
        organisation: of the certificates' subjects.
        labels: of a Secret that is created.

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
    """The hosts that an API server calls by a URL."""
    urls = (urlsplit(each.get("url") or "") for each in _callers(obj))
    return {url.hostname for url in urls if url.hostname}


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


async def inject(
    client: Client, trusting: Iterable[Trusting], ca_cert: bytes
) -> tuple[list[str], Names]:
    """Write the authority into every object; objects that have it are only read.

    Returns:
        the names of the objects that do not exist, and of optional ones that we have no right to;
        and the hosts of the URLs in the others, which the server's certificate has to name.

    Raises:
        ApiError: one cannot be read or written.
    """
    missing, hosts = [], set[str]()
    for target in trusting:
        try:
            hosts |= await _inject_one(client, target, ca_cert)
        except (NotFound, Forbidden) as error:
            if isinstance(error, Forbidden) and not target.optional:
                raise
            missing.append(_path(target))
    return missing, host_names(hosts)


def _path(target: Trusting) -> str:
    return f"{target.resource.plural}/{target.name}"


async def _inject_one(client: Client, target: Trusting, ca_cert: bytes) -> set[str]:
    """Writes the authority into one object; returns the hosts of its URLs."""
    key, hosts = ObjectKey("", target.name), set[str]()
    for attempt in range(ATTEMPTS):
        obj = await client.get(target.resource, key)
        hosts = _hosts(obj)
        wanted = with_bundle(obj, ca_cert)
        if wanted is obj:
            break
        try:
            await client.replace(target.resource, wanted)
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
            continue
        break
    return hosts


class CertificateKeeper:
    """Keeps TLS contexts supplied with good certificates; a part of a `Manager`.

    Every minute, and whenever it is poked, it reads the Secret, renews what is about to end,
    repairs missing bundles, and loads what changed into the contexts; nothing is restarted. Objects
    that do not exist, or that we have no right to, are looked for every two seconds.

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
        names: Names | Iterable[str],
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
        self._names = names if isinstance(names, Names) else host_names(names)
        self._trusting = tuple(trusting)
        self._clock = clock
        self._organisation = organisation
        self._period = period
        self._loaded: Certificates | None = None
        self._missing: list[str] = []
        self._poked = asyncio.Event()
        self._log = get_logger("certificates")

    def poke(self, _: Delta[Obj] | None = None) -> None:
        """Look again now; usable as an informer's handler."""
        self._poked.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Keep certificates until cancelled; `ready` is called once the contexts have one."""
        pauses = Backoff(base=0.5, cap=30.0, jitter=0.5)
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
            left = max(due - now(), 0.0)
            with anyio.move_on_after(min(left, MISSING_PERIOD) if self._missing else left):
                await self._poked.wait()

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
            self._loaded = certificates

    async def _ensured(self) -> Certificates:
        return await ensure_certificates(
            self._client,
            self._secret,
            self._names,
            clock=self._clock,
            organisation=self._organisation,
        )

    async def _look_for_the_missing(self) -> None:
        if self._loaded is not None:
            missing = [one for one in self._trusting if _path(one) in self._missing]
            if not await self._give(missing, self._loaded):
                self.poke()

    async def _give(self, trusting: Iterable[Trusting], certificates: Certificates) -> bool:
        """Makes objects trust our authority, and says which ones cannot; returns whether we knew
        all the names under which they call us.
        """
        missing, called = await inject(self._client, trusting, certificates.ca_cert)
        if missing != self._missing:
            self._missing = missing
            if missing:
                self._log.warning(
                    "the objects that should trust our certificate are missing", missing=missing
                )
        known = self._names.covers(called)
        self._names |= called
        return known
