"""The HTTPS server of admission and conversion webhooks, and its place in a manager.

The HTTP status is 200 whenever the review could be read; the verdict is inside.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any

import anyio
import attrs
import orjson
from aiohttp import web

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.errors import ApiError, BadRequest, ConfigError, KueuelibError, ServerError
from kueuelib.runtime.addresses import parse_address
from kueuelib.runtime.certificates import ServerNames, host_names, server_context
from kueuelib.runtime.client import Client
from kueuelib.runtime.http import serving
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.server_limits import Bodies
from kueuelib.runtime.steps import in_own_task
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.webhook.admission import (
    MAX_BODY,
    MAX_VALUES,
    AdmissionRequest,
    Forms,
    Mutator,
    RequestMutator,
    Shapes,
    Validator,
    denied,
    form_of,
    is_too_much,
    misfit,
    misfit_of_objects,
    mutating,
    parse_request,
    validating,
)
from kueuelib.runtime.webhook.fast_path import FastPath
from kueuelib.runtime.webhook.trust import CertificateKeeper, Trusting

# ---- `ConversionReview` v1: objects of one version in, the same objects of another out -----------

Converter = Callable[[Obj, str], Obj]
"""(object, version without group) to the object in that version, as a new dict."""
YIELD_EVERY = 100
"""After this many objects, other requests get a turn."""
_KEPT = ("name", "namespace", "uid")


class ConversionFailed(KueuelibError):
    """An object cannot be converted; the message names it."""


async def convert_all(request: Mapping[str, Any], converter: Converter) -> list[Obj]:
    """All objects of a review's `request`, converted.

    Raises:
        ConversionFailed: one cannot be converted; then none is.
    """
    desired = str(request["desiredAPIVersion"])
    converted = []
    for number, obj in enumerate(request.get("objects") or (), 1):
        converted.append(convert_one(obj, desired, converter))
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
    return converted


def convert_at_once(request: Mapping[str, Any], converter: Converter) -> list[Obj] | None:
    """The result of `convert_all`, if that never lets other requests pass; else None.

    Raises:
        ConversionFailed: one cannot be converted.
    """
    objects, desired = request.get("objects") or (), str(request["desiredAPIVersion"])
    if len(objects) >= YIELD_EVERY:
        return None
    return [convert_one(obj, desired, converter) for obj in objects]


def convert_one(obj: Obj, desired: str, converter: Converter) -> Obj:
    """One object in the version `desired`, which is written `group/version`.

    Raises:
        ConversionFailed: the converter refused it, or changed its identity.
    """
    present = str(obj.get("apiVersion") or "")
    if present == desired:
        return obj
    meta = obj.get("metadata") or {}
    what = f"{obj.get('kind')} {meta.get('namespace') or ''}/{meta.get('name') or ''}"
    group, _, version = desired.rpartition("/")
    if present.rpartition("/")[0] != group:
        raise ConversionFailed(f"{what}: cannot become {desired}, it is {present!r}")
    try:
        made = converter(obj, version)
    except (KueuelibError, ValueError) as error:
        raise ConversionFailed(f"{what}: {present} to {desired}: {error}") from error
    if made.get("apiVersion") != desired:
        raise ConversionFailed(f"{what}: became {made.get('apiVersion')!r} instead of {desired}")
    after = made.get("metadata") or {}
    for field in _KEPT:
        if after.get(field) != meta.get(field):
            raise ConversionFailed(f"{what}: the conversion changed metadata.{field}")
    return made


def review_answer(uid: str, converted: list[Obj] | None, message: str = "") -> Obj:
    """The `response` of a review: the objects, or the reason of the failure."""
    if converted is None:
        return {
            "uid": uid,
            "convertedObjects": [],
            "result": {"status": "Failure", "message": message},
        }
    return {"uid": uid, "convertedObjects": converted, "result": {"status": "Success"}}


# --------------------------------------------------------------------------------------------------

HELD = 8 * MAX_BODY
"""Bytes of reviews that are read or wait, together: they can be sent without credentials."""
LARGE = 256 * 1024
"""Reviews of more bytes are handled one at a time, and judged in a thread."""
_CRASHED = "the webhook failed; its log has the reason"
DRAIN = 5.0
"""Seconds that running requests have when the server stops."""
ANY: Shapes = {}
"""Any object passes."""
Review = dict[str, Any]
_Answer = Callable[[Mapping[str, Any]], Awaitable[Obj]]
_AtOnce = Callable[[Mapping[str, Any]], Obj | None]


_HTTP_LOG = logging.getLogger("kueuelib.webhook.http")


class WebhookServer:
    """Serves pure handlers by path, over HTTPS; a part of a `Manager`.

    Args:
        host: the address to bind; all when empty.
        port: 0 for any free one; see `port`.
        tls: the context; its certificate may be replaced while the server runs.
        telemetry: where calls are reported.
        subject: what to name in errors, for example the configuration's key.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        *,
        telemetry: Telemetry | None = None,
        subject: str = "",
    ) -> None:
        self.port = port
        self._subject = subject
        self.serving = False
        self._host = host
        self._tls = tls
        self._paths: dict[str, tuple[str, _Answer]] = {}
        self._at_once: dict[str, _AtOnce] = {}
        self._large = asyncio.Lock()
        self._bodies = Bodies(HELD)
        self._log = get_logger("webhook")
        self._metrics = _Metrics(telemetry)

    def mutate(self, path: str, mutator: Mutator, shapes: Shapes = ANY) -> None:
        """Serve defaulting under `path`: a pure function of the raw object.

        Raises:
            ValueError: the path is taken.
        """
        handler = mutating(mutator)
        self.admit(path, handler, shapes, handler)

    def mutate_with_request(self, path: str, mutator: RequestMutator, shapes: Shapes = ANY) -> None:
        """Serve defaulting under `path`: a pure function of the raw object and the request."""
        handler = mutating(mutator, with_request=True)
        self.admit(path, handler, shapes, handler)

    def validate(self, path: str, validator: Validator, shapes: Shapes = ANY) -> None:
        """Serve validation under `path`: a pure function of (new, old, request)."""
        handler = validating(validator)
        self.admit(path, handler, shapes, handler)

    def admit(
        self,
        path: str,
        handler: Callable[[AdmissionRequest], Obj | Awaitable[Obj]],
        shapes: Shapes = ANY,
        at_once: Callable[[AdmissionRequest], Obj | None] | None = None,
    ) -> None:
        """Serve any admission handler under `path`; it may be a coroutine function.

        Args:
            path: of the URL.
            handler: from the request to the `response` of the review, without its uid. If it
                fails, the request is denied with 500 and the log has a traceback. A coroutine is
                cancelled, by anyio's rules, once nobody waits for the answer: the API server
                disconnects after its deadline.
            shapes: the schemas of the objects that it can read, by `apiVersion`. It is not called
                with others: they are denied with 400 and the field.
            at_once: answers as the handler does, or with None if that has to wait for something;
                without waiting, a review takes less time.
        """

        @cache
        def forms() -> Forms:
            return {version: form_of(shape) for version, shape in shapes.items()}

        async def answer(raw: Mapping[str, Any]) -> Obj:
            request = parse_request(raw)
            if wrong := misfit_of_objects(raw, forms()):
                return {**denied(BadRequest(wrong)), "uid": request.uid}
            try:
                response = handler(request)
                if inspect.isawaitable(response):
                    response = await in_own_task(response)
            except Exception as error:  # noqa: BLE001 - the top of a request
                self._crashed(path, handler, error)
                response = denied(ServerError(_CRASHED))
            return {**response, "uid": request.uid}

        def answer_at_once(raw: Mapping[str, Any]) -> Obj | None:
            if at_once is None or misfit_of_objects(raw, forms()):
                return None
            response = at_once(parse_request(raw))
            return None if response is None else {**response, "uid": raw["uid"]}

        self._add(path, "AdmissionReview", answer)
        if at_once is not None:
            self._at_once[path] = answer_at_once

    def convert(self, path: str, converter: Converter) -> None:
        """Serve conversion under `path`: a pure function of (object, version)."""

        async def answer(raw: Mapping[str, Any]) -> Obj:
            try:
                converted: list[Obj] | None = await convert_all(raw, converter)
                message = ""
            except ConversionFailed as error:
                converted, message = None, str(error)
                self._log.warning("conversion failed", error=message)
            except Exception as error:  # noqa: BLE001 - the top of a request
                self._crashed(path, converter, error, conversion=True)
                converted, message = None, _CRASHED
            return review_answer(raw["uid"], converted, message)

        def answer_at_once(raw: Mapping[str, Any]) -> Obj | None:
            converted = convert_at_once(raw, converter)
            return None if converted is None else review_answer(raw["uid"], converted)

        self._add(path, "ConversionReview", answer)
        self._at_once[path] = answer_at_once

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that is served."""
        return tuple(self._paths)

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled."""
        server = web.Server(self._handle, request_factory=_request, handler_cancellation=True)
        async with serving(
            server,
            self._host,
            self.port,
            tls=self._tls,
            drain=DRAIN,
            subject=self._subject,
            connection=partial(FastPath, answer=self._answer_at_once, logger=_HTTP_LOG),
        ) as self.port:
            self.serving = True
            ready()
            try:
                await anyio.sleep_forever()
            finally:
                self.serving = False

    def _add(self, path: str, kind: str, answer: _Answer) -> None:
        if path in self._paths:
            raise ValueError(f"{path} is served already")
        self._paths[path] = (kind, answer)
        self._metrics.add(path)

    def _answer_at_once(self, path: str, body: bytes) -> bytes | None:
        """The body of the answer to a common review; None if `_handle` has to answer."""
        answer = self._at_once.get(path)
        if answer is None:
            return None
        started = time.monotonic()
        kind, _ = self._paths[path]
        review = "" if is_too_much(body, kind) else _read(body, kind)
        if isinstance(review, str):
            return None
        try:
            response = answer(review["request"])
        except Exception:  # noqa: BLE001 - `_handle` meets it again, and reports it
            return None
        if response is None:
            return None
        code, answered = _written(review, response)
        self._metrics.answered(path, code, time.monotonic() - started)
        return answered

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        route = self._paths.get(request.path)
        if route is None:
            raise web.HTTPNotFound(text=f"no webhook at {request.path}")
        if request.method != "POST":
            raise web.HTTPMethodNotAllowed(request.method, ["POST"])
        started = time.monotonic()
        code = "500"
        self._metrics.began(request.path)
        try:
            if request.content_type != "application/json":
                raise web.HTTPUnsupportedMediaType(text="send application/json")
            async with self._bodies.read(request) as body:
                code, answered = await self._review(body, *route)
            return web.Response(body=answered, content_type="application/json")
        except (ApiError, web.RequestPayloadError) as error:
            status = error.code if isinstance(error, ApiError) else 400
            text = error.message if isinstance(error, ApiError) else "the body cannot be decoded"
            code = str(status)
            return web.Response(status=status, text=text)
        except web.HTTPException as error:
            # Raised further, it would keep its frames, with the body, until the garbage collector
            # comes, which is rare in a manager.
            code = str(error.status)
            return web.Response(status=error.status, text=error.text)
        finally:
            self._metrics.ended(request.path, code, time.monotonic() - started)

    async def _review(self, body: bytes, kind: str, answer: _Answer) -> tuple[str, bytes]:
        """The code and the body of the answer to a review."""
        if not body:
            raise web.HTTPBadRequest(text="the body is empty")
        if len(body) <= LARGE:
            return await _answered(body, kind, answer)
        async with self._large:
            return await _answered(body, kind, answer)

    def _crashed(
        self, path: str, handler: Callable[..., Any], error: Exception, *, conversion: bool = False
    ) -> None:
        self._metrics.crashed(path, conversion=conversion)
        function = inspect.unwrap(handler)
        name = f"{function.__module__}.{getattr(function, '__qualname__', repr(function))}"
        self._log.error("a webhook handler failed", path=path, handler=name, exc_info=error)


def _request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)


async def _answered(body: bytes, kind: str, answer: _Answer) -> tuple[str, bytes]:
    """The code and the body of the answer to a review."""
    if is_too_much(body, kind):
        text = "the review has too many values"
        raise web.HTTPRequestEntityTooLarge(MAX_VALUES, MAX_VALUES + 1, text=text)
    if len(body) <= LARGE:
        review = _read(body, kind)
    else:
        review = await asyncio.to_thread(_read, body, kind)
    if isinstance(review, str):
        raise web.HTTPBadRequest(text=review)
    return _written(review, await answer(review["request"]))


def _written(review: Review, response: Obj) -> tuple[str, bytes]:
    """The code and the body of the answer to a review."""
    code = str((response.get("status") or {}).get("code", 200))
    mirrored = {"apiVersion": review["apiVersion"], "kind": review["kind"]}
    return code, orjson.dumps({**mirrored, "response": response})


def _read(body: bytes, kind: str) -> Review | str:
    """A review, or what is wrong with it."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "the body is not JSON"
    return misfit(review, kind) or review


class _Metrics:
    """Calls by path, under controller-runtime's names."""

    def __init__(self, telemetry: Telemetry | None) -> None:
        self._telemetry = telemetry
        self._series: dict[tuple[str, str], tuple[Callable[[], None], Callable[[float], None]]] = {}
        if telemetry is None:
            return
        prefix = "controller_runtime_webhook"
        self._seconds = telemetry.histogram(
            f"{prefix}_latency_seconds", "How long a review takes.", ("webhook",)
        )
        self._requests = telemetry.counter(
            f"{prefix}_requests_total", "Reviews by answer.", ("webhook", "code")
        )
        self._running = telemetry.gauge(
            f"{prefix}_requests_in_flight", "Reviews under way.", ("webhook",)
        )
        self._panics = telemetry.counter(
            f"{prefix}_panics_total", "Reviews that failed unexpectedly.", ("webhook",)
        )
        self._conversion_panics = telemetry.counter(
            "controller_runtime_conversion_webhook_panics_total",
            "Conversions that failed unexpectedly.",
        )

    def add(self, path: str) -> None:
        """Show a path from the beginning."""
        if self._telemetry is not None:
            self._running.labels(path)

    def began(self, path: str) -> None:
        if self._telemetry is not None:
            self._running.labels(path).inc()

    def ended(self, path: str, code: str, seconds: float) -> None:
        if self._telemetry is not None:
            self._running.labels(path).dec()
            self.answered(path, code, seconds)

    def answered(self, path: str, code: str, seconds: float) -> None:
        if self._telemetry is None:
            return
        series = self._series.get((path, code))
        if series is None:
            series = self._requests.labels(path, code).inc, self._seconds.labels(path).observe
            self._series[path, code] = series
        count, observe = series
        count()
        observe(seconds)

    def crashed(self, path: str, *, conversion: bool) -> None:
        if self._telemetry is None:
            return
        if conversion:
            self._conversion_panics.inc()
        else:
            self._panics.labels(path).inc()


# Webhooks as parts of a manager: the server, its certificate, and the objects that trust it.

WEBHOOK = "webhook address"
"""What the address is called in errors."""


@attrs.frozen
class Webhooks:
    """A webhook server of a manager, and the configurations that send objects to it.

    Attributes:
        server: handlers are registered with it before the manager runs.
        mutating: the name of the MutatingWebhookConfiguration.
        validating: the name of the ValidatingWebhookConfiguration.
        user: the user name of the program in the cluster, whose own writes need no review.
    """

    server: WebhookServer
    mutating: str
    validating: str
    user: str


def add_webhook_server(
    manager: Manager,
    client: Client,
    address: str,
    names: ServerNames,
    secret: ObjectKey,
    trusting: Iterable[Trusting],
    *,
    organisation: str = "kueuelib",
    telemetry: Telemetry | None = None,
) -> WebhookServer:
    """Add a webhook server, and the keeper of its certificate.

    Args:
        manager: runs both.
        client: reads and writes the certificate.
        address: `host:port` to listen at.
        names: of the certificate, besides the host.
        secret: where the certificate is kept.
        trusting: the objects that carry our authority.
        organisation: in the certificate.
        telemetry: where the server reports.

    Raises:
        ConfigError: the address is malformed.
    """
    place = parse_address(address, WEBHOOK)
    if place is None:
        raise ConfigError(WEBHOOK, "webhooks are needed", "write HOST:PORT")
    host, port = place
    if host and host not in ("0.0.0.0", "::"):
        names |= host_names([host])
    tls = server_context()
    keeper = CertificateKeeper(client, [tls], secret, names, trusting, organisation=organisation)
    server = WebhookServer(host, port, tls, telemetry=telemetry, subject=WEBHOOK)
    manager.add(Group.WEBHOOKS, keeper, "certificates")
    manager.add(Group.WEBHOOKS, server, "webhook server")
    return server
