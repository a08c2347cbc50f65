"""Webhooks and the visibility API: registered, trusted and reachable."""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

from kueuelib.api.kinds import (
    API_SERVICES,
    CRDS,
    MUTATING_WEBHOOKS,
    SECRETS,
    SERVICES,
    VALIDATING_WEBHOOKS,
)
from kueuelib.api.meta import Obj, ObjectKey, find_condition, format_time
from kueuelib.api.phrases import some
from kueuelib.app.doctor.checks.managers import changes_hands, leads
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check, subject_of
from kueuelib.app.doctor.manager import (
    CERTIFICATE,
    CONFIGURATIONS,
    CONVERSION,
    LEADER,
    MISDIRECTED,
    MISSING_KIND,
    REFUSED,
    TERMINATING,
    UNREACHABLE,
    client_configs,
    install,
    is_fixed,
    look,
    no_manager,
    outside,
    start,
)
from kueuelib.app.doctor.snapshot import CALLS, ClusterSnapshot
from kueuelib.app.foreign_finalizers import foreign_finalizers, removal_of
from kueuelib.controllers.manifests import api_service_names
from kueuelib.controllers.webhooks import queueing_entries
from kueuelib.runtime.certificates import (
    DAY,
    Certificates,
    CertificateVerdict,
    ServerNames,
    host_names,
    judge,
    service_names,
)
from kueuelib.runtime.webhook.trust import from_secret

# ---- the visibility API: whether it is registered, and whether the API server gets an answer -----

_KIND = API_SERVICES.kind


@check("visibility-missing", _KIND)
def unregistered(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """APIServices that do not exist although the configuration asks for the visibility API."""
    if snapshot.configuration.visibility_server is None:
        return
    for name in api_service_names():
        if snapshot.find(_KIND, name) is None:
            problem = "it does not exist, but the configuration has visibilityServer"
            yield Finding(Severity.WARNING, Subject(_KIND, name), problem, install(snapshot))


@check("visibility-unavailable", _KIND, momentary=True)
def unavailable(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """APIServices from whose server the API server gets no answer."""
    for name in api_service_names():
        service = snapshot.find(_KIND, name)
        why = "" if service is None else _why(service)
        if service is not None and why:
            problem = (
                f"the API server gets no valid answer ({why}); until it does, deleted namespaces "
                "stay Terminating"
            )
            fix, follows = _visibility_fix(snapshot)
            yield Finding(Severity.WARNING, subject_of(_KIND, service), problem, fix, follows)


def _why(service: Obj) -> str:
    """The API server's reason; empty if it is available, or not judged yet."""
    condition = find_condition((service.get("status") or {}).get("conditions"), "Available")
    if condition.get("status") in (None, "True"):
        return ""
    return ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))


def _visibility_fix(snapshot: ClusterSnapshot) -> tuple[str, tuple[str, ...]]:
    """The command, and the checks whose errors explain it."""
    if snapshot.configuration.visibility_server is not None:
        return look(snapshot), no_manager(snapshot)
    there = [name for name in api_service_names() if snapshot.find(_KIND, name)]
    remove = f"kubectl delete apiservice {' '.join(there)}"
    return f"{remove}  # or start the manager with visibilityServer in its configuration", ()


# --------------------------------------------------------------------------------------------------

MUTATING, VALIDATING = MUTATING_WEBHOOKS.kind, VALIDATING_WEBHOOKS.kind
AUTHORITY = "webhook-authority"
SOON = 30 * DAY


@check("webhook-missing", MUTATING, VALIDATING, momentary=True)
def missing(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Webhooks that are not registered, so that nothing is defaulted or refused."""
    for kind, name in CONFIGURATIONS:
        subject = Subject(kind, name)
        configuration = snapshot.find(kind, name)
        if configuration is None:
            problem = "it does not exist, so nothing is checked and no Job or Pod is held back"
            follows = (MISSING_KIND, TERMINATING)
            yield Finding(Severity.ERROR, subject, problem, install(snapshot), follows)
            continue
        known = {one["name"] for one in configuration.get("webhooks") or ()}
        lost = [
            one.entry["name"]
            for one in queueing_entries()
            if one.mutating is (kind == MUTATING) and one.entry["name"] not in known
        ]
        if lost:
            problem = f"it lacks {', '.join(lost)}"
            yield Finding(Severity.WARNING, subject, problem, install(snapshot), (LEADER,))


@check(MISDIRECTED, MUTATING, VALIDATING, CRDS.kind, SERVICES.kind)
def misdirected(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Webhooks that lead to a Service that does not exist."""
    for subject, config in client_configs(snapshot):
        service = config.get("service")
        if service and _is_absent(snapshot, service):
            key = ObjectKey(service["namespace"], service["name"])
            problem = f"it leads to Service {key}, which does not exist"
            yield Finding(Severity.ERROR, subject, problem, install(snapshot), (MISSING_KIND,))


@check(AUTHORITY, MUTATING, VALIDATING, CRDS.kind, momentary=True)
def authority(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Authorities in our webhooks' configurations that are wrong or cannot be read."""
    secret = _certificates(snapshot)
    ours = None if secret is None else secret.ca_cert
    for subject, config in client_configs(snapshot):
        problem, severity = _of_bundle(config.get("caBundle") or "", ours, snapshot.now)
        if problem:
            yield Finding(severity, subject, problem, _fix(snapshot), (LEADER, CERTIFICATE))


@check(CERTIFICATE, SECRETS.kind, MUTATING, momentary=True)
def certificate(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """The certificate of the webhook server: its chain, its end and its names."""
    if not snapshot.configuration.internal_cert_management.enable:
        return  # it is in files of the manager's machine
    name = snapshot.configuration.internal_cert_management.webhook_secret_name
    subject = Subject(SECRETS.kind, name, snapshot.namespace)
    certificates, fixed = _certificates(snapshot), is_fixed(snapshot)
    fix = _without(snapshot.all(SECRETS.kind)[0]) if fixed else _fix(snapshot)
    why = ", and is immutable: no manager can write one into it" if fixed else ""
    if certificates is None:
        if not snapshot.all(SECRETS.kind):
            problem = "it does not exist: no manager has made a certificate yet"
        else:
            problem = f"it does not hold ca.crt, ca.key, tls.crt and tls.key{why}"
        follows = () if fixed else (*_unwritten(snapshot), LEADER, MISSING_KIND)
        yield Finding(Severity.ERROR, subject, problem, fix, follows)
        return
    judgement = judge(certificates)
    problem, severity = _of_server(snapshot, judgement)
    if problem:
        follows = () if fixed else (*_unwritten(snapshot), LEADER, MISDIRECTED)
        yield Finding(severity, subject, f"{problem}{why}", fix, follows)


def _unwritten(snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """The check that says why no manager can write the Secret; none if it can."""
    refused = any(call.refusal and call.kind == SECRETS.kind for call in snapshot.calls)
    return (REFUSED,) if refused else ()


def _without(secret: Obj) -> str:
    """The command that makes a Secret go, also if other programs keep it."""
    meta, others = secret["metadata"], foreign_finalizers(secret)
    commands = [removal_of("secret", secret, others)] if others else []
    if not meta.get("deletionTimestamp"):
        commands.append(f"kubectl -n {meta['namespace']} delete secret {meta['name']}")
    remark = "a manager makes a new one"
    remark += f"; finalizer {some(others)} of another program keeps this one" if others else ""
    return f"{' && '.join(commands)}  # {remark}"


@check(UNREACHABLE, CALLS, momentary=True)
def unreachable(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Webhooks of ours that the API server cannot reach."""
    if changes_hands(snapshot):
        return
    theirs = {
        webhook["name"]
        for kind in (MUTATING, VALIDATING)
        for configuration in snapshot.all(kind)
        if (kind, configuration["metadata"]["name"]) not in CONFIGURATIONS
        for webhook in configuration.get("webhooks") or ()
    }
    for call in snapshot.calls:
        if call.error and call.webhook not in theirs:
            problem = f"the API server does not reach the {call.what} webhook: {call.error}"
            service = snapshot.configuration.internal_cert_management.webhook_service_name
            subject = Subject("Service", service, snapshot.namespace)
            follows = (LEADER, MISDIRECTED, CONVERSION, CERTIFICATE, AUTHORITY)
            yield Finding(Severity.ERROR, subject, problem, _serve(snapshot), follows)


def _is_absent(snapshot: ClusterSnapshot, service: Obj) -> bool:
    """Whether a Service to which a webhook leads does not exist, as far as they were read."""
    there = snapshot.find(SERVICES.kind, service["name"], service["namespace"])
    return there is None and not snapshot.why_unseen(SERVICES.kind)


def _fix(snapshot: ClusterSnapshot) -> str:
    """A manager makes certificates, and writes their authority wherever it is trusted."""
    return look(snapshot) if leads(snapshot) else start(snapshot)


def _serve(snapshot: ClusterSnapshot) -> str:
    """What makes the webhooks be served where the API server looks for them."""
    if outside(snapshot):
        elsewhere = install(snapshot, "https://HOST:PORT")
        return f"{start(snapshot)}, or name its address: {elsewhere}"
    return start(snapshot)


def _certificates(snapshot: ClusterSnapshot) -> Certificates | None:
    """The manager's certificates; None if it keeps none."""
    if not snapshot.configuration.internal_cert_management.enable:
        return None
    return next((from_secret(one) for one in snapshot.all(SECRETS.kind)), None)


def _of_bundle(bundle: str, ours: bytes | None, now: float) -> tuple[str, Severity]:
    """What is wrong with a `caBundle`; empty if it is fine."""
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


def _of_server(snapshot: ClusterSnapshot, judgement: CertificateVerdict) -> tuple[str, Severity]:
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


def _names(snapshot: ClusterSnapshot) -> ServerNames:
    """The host names that the API server uses for the webhooks."""
    names = ServerNames()
    for _, config in client_configs(snapshot):
        service = config.get("service")
        if service and not _is_absent(snapshot, service):
            name = service_names(service["name"], service["namespace"])
            names |= ServerNames({host for host in name.hosts if host.endswith(".svc")})
        elif config.get("url"):
            host = urlsplit(config["url"]).hostname
            names |= host_names([host] if host else [])
    return names
