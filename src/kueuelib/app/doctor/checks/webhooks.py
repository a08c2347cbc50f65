"""Webhooks: are ours registered, trusted and reached, and how long are certificates good."""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

from kueuelib.api.kinds import CRDS, MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from kueuelib.api.meta import Obj, format_time
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check
from kueuelib.app.doctor.snapshot import CALLS, Snapshot
from kueuelib.app.installation import converted_crds
from kueuelib.controllers.webhooks import (
    MUTATING_CONFIGURATION,
    VALIDATING_CONFIGURATION,
    queueing_entries,
)
from kueuelib.runtime.webhook.certs import (
    DAY,
    Certificates,
    Judgement,
    Names,
    host_names,
    judge,
    service_names,
)
from kueuelib.runtime.webhook.trust import from_secret

MUTATING, VALIDATING = MUTATING_WEBHOOKS.kind, VALIDATING_WEBHOOKS.kind
CONFIGURATIONS = (
    (MUTATING, MUTATING_CONFIGURATION, True),
    (VALIDATING, VALIDATING_CONFIGURATION, False),
)
SOON = 30 * DAY
INSTALL = "kueuelib install"


@check("webhook-missing", MUTATING, VALIDATING)
def missing(snapshot: Snapshot) -> Iterator[Finding]:
    """Webhooks that the API server does not know, so that nothing is defaulted or refused."""
    for kind, name, mutating in CONFIGURATIONS:
        subject = Subject(kind, name)
        found = snapshot.find(kind, name)
        if found is None:
            problem = "it does not exist, so nothing is checked and no Job or Pod is held back"
            yield Finding(Severity.ERROR, subject, problem, INSTALL)
            continue
        known = {one["name"] for one in found.get("webhooks") or ()}
        lost = [
            one.entry["name"]
            for one in queueing_entries()
            if one.mutating is mutating and one.entry["name"] not in known
        ]
        if lost:
            problem = f"it lacks {', '.join(lost)}"
            yield Finding(Severity.WARNING, subject, problem, INSTALL)


@check("webhook-authority", MUTATING, VALIDATING, CRDS.kind)
def authority(snapshot: Snapshot) -> Iterator[Finding]:
    """Authorities that the API server trusts for our webhooks, and should not or cannot."""
    secret = _certificates(snapshot)
    ours = None if secret is None else secret.ca_cert
    for subject, config in _client_configs(snapshot):
        problem, severity = _of_bundle(config.get("caBundle") or "", ours, snapshot.now)
        if problem:
            yield Finding(severity, subject, problem, _fix(snapshot))


@check("webhook-certificate", SECRETS.kind, MUTATING)
def certificate(snapshot: Snapshot) -> Iterator[Finding]:
    """The certificate of the webhook server: its chain, its end and its names."""
    if not snapshot.configuration.internal_cert_management.enable:
        return  # it is in files of the manager's machine
    name = snapshot.configuration.internal_cert_management.webhook_secret_name
    subject = Subject(SECRETS.kind, name, snapshot.namespace)
    found = _certificates(snapshot)
    if found is None:
        if not snapshot.all(SECRETS.kind):
            problem = "it does not exist: no manager has made a certificate yet"
        else:
            problem = "it does not hold ca.crt, ca.key, tls.crt and tls.key"
        yield Finding(Severity.ERROR, subject, problem, _fix(snapshot))
        return
    judgement = judge(found)
    problem, severity = _of_server(snapshot, judgement)
    if problem:
        yield Finding(severity, subject, problem, _fix(snapshot))


@check("webhook-unreachable", CALLS)
def unreachable(snapshot: Snapshot) -> Iterator[Finding]:
    """Webhooks that the API server cannot reach."""
    for call in snapshot.calls:
        if call.error:
            problem = f"the API server does not reach the {call.what} webhook: {call.error}"
            subject = Subject("Service", _service(snapshot), snapshot.namespace)
            yield Finding(Severity.ERROR, subject, problem, _server(snapshot))


def _server(snapshot: Snapshot) -> str:
    """How to look at what serves the webhooks, in the cluster or outside."""
    for _, config in _client_configs(snapshot):
        if config.get("url"):
            address = "/".join(config["url"].split("/")[:3])
            return f"kueuelib install --webhook-url {address}  # and start a manager there"
    return _pods(snapshot)


def _service(snapshot: Snapshot) -> str:
    return snapshot.configuration.internal_cert_management.webhook_service_name


def _pods(snapshot: Snapshot) -> str:
    return f"kubectl -n {snapshot.namespace} get pods,endpointslices"


def _fix(snapshot: Snapshot) -> str:
    """A manager makes certificates, and tells them to all that trust them, within a minute."""
    return f"start a manager, which renews it: {_pods(snapshot)}"


def _certificates(snapshot: Snapshot) -> Certificates | None:
    """What the manager keeps; None where it keeps none."""
    if not snapshot.configuration.internal_cert_management.enable:
        return None
    return next((from_secret(one) for one in snapshot.all(SECRETS.kind)), None)


def _client_configs(snapshot: Snapshot) -> Iterator[tuple[Subject, Obj]]:
    """How the API server reaches our webhooks; of each object those that differ."""
    for kind, name, _ in CONFIGURATIONS:
        found = snapshot.find(kind, name)
        seen = []
        for webhook in () if found is None else found.get("webhooks") or ():
            config = webhook.get("clientConfig") or {}
            if config.get("caBundle") not in seen:
                seen.append(config.get("caBundle"))
                yield Subject(kind, name), config
    for name in converted_crds():
        found = snapshot.find(CRDS.kind, name)
        conversion = {} if found is None else found["spec"].get("conversion") or {}
        if conversion.get("strategy") == "Webhook":
            yield (
                Subject(CRDS.kind, name),
                (conversion.get("webhook") or {}).get("clientConfig") or {},
            )


def _of_bundle(bundle: str, ours: bytes | None, now: float) -> tuple[str, Severity]:
    """What is wrong with a `caBundle`; empty for nothing."""
    if not bundle:
        return "caBundle is empty, so that no certificate is trusted", Severity.ERROR
    try:
        pem = base64.b64decode(bundle, validate=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=pem.decode("ascii"))
        ends = [ssl.cert_time_to_seconds(str(one["notAfter"])) for one in context.get_ca_certs()]
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError, ValueError):
        return "caBundle holds no certificate of an authority", Severity.ERROR
    if ours is not None and ours not in pem and pem not in ours:
        text = "caBundle is not the authority of the webhook server's certificate"
        return text, Severity.ERROR
    return _end("the authority in caBundle", max(ends, default=0.0), now)


def _of_server(snapshot: Snapshot, judgement: Judgement) -> tuple[str, Severity]:
    if judgement.problem:
        return f"its certificate is not accepted: {judgement.problem}", Severity.ERROR
    wanted = _names(snapshot)
    if not judgement.names.covers(wanted):
        lost = sorted(
            (wanted.hosts - judgement.names.hosts) | (wanted.addresses - judgement.names.addresses)
        )
        text = f"its certificate is not for {', '.join(lost)}, which the API server calls"
        return text, Severity.ERROR
    return _end("the server certificate", judgement.server_ends, snapshot.now)


def _end(what: str, at: float, now: float) -> tuple[str, Severity]:
    if at <= now:
        return f"{what} ended at {format_time(at)}", Severity.ERROR
    if at - now < SOON:
        text = f"{what} ends at {format_time(at)}, and no manager has renewed it"
        return text, Severity.WARNING
    return "", Severity.HINT


def _names(snapshot: Snapshot) -> Names:
    """The names by which the API server calls the webhooks."""
    found = Names()
    for _, config in _client_configs(snapshot):
        service = config.get("service")
        if service:
            name = service_names(service["name"], service["namespace"])
            found |= Names({host for host in name.hosts if host.endswith(".svc")})
        elif config.get("url"):
            host = urlsplit(config["url"]).hostname
            found |= host_names([host] if host else [])
    return found
