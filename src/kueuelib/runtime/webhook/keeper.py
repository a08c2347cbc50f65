"""Keeps the certificate of running webhook servers, and the trust of the API server in it."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import anyio

from kueuelib.api.kinds import SECRETS
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.errors import ApiError, ConfigError, TransportError
from kueuelib.machinery.backoff import Backoff
from kueuelib.machinery.store import Delta
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.steps import lasting_tasks
from kueuelib.runtime.webhook.certs import Certificates, Names, host_names, load
from kueuelib.runtime.webhook.trust import Trusting, ensure_certificates, inject, path_of

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
