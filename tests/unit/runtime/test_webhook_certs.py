from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import time
from datetime import UTC, datetime

import attrs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from kueuelib.runtime.certificates import (
    AUTHORITY_LIFE,
    DAY,
    RENEW_BEFORE,
    SERVER_LIFE,
    Certificates,
    ServerNames,
    _new_server,
    host_names,
    judge,
    load,
    renewed,
    server_context,
    service_names,
)

NAMES = service_names("hooks", "ns") | host_names(["127.0.0.1", "localhost", "::1"])


@pytest.fixture(scope="module")
def now():
    return time.time()


@pytest.fixture(scope="module")
def made(now):
    return renewed(None, NAMES, now)


def test_names_of_hosts_and_addresses_are_told_apart():
    assert host_names(["127.0.0.1", "a.b", "::1"]) == ServerNames({"a.b"}, {"127.0.0.1", "::1"})
    assert service_names("s", "n").hosts == {"s.n.svc", "s.n.svc.cluster.local"}


def authority_of_the_go_manager(now: float) -> Certificates:
    """A certificate for one name, by an authority with an RSA key in PKCS #1."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kueue-ca")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    usage = dict.fromkeys(
        (
            *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
            *("crl_sign", "encipher_only", "decipher_only"),
        ),
        False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(now - 3600, UTC))
        .not_valid_after(datetime.fromtimestamp(now + AUTHORITY_LIFE, UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=True, **usage), critical=True
        )
        .add_extension(identifier, critical=False)
        .add_extension(issuer, critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.TraditionalOpenSSL
    ca_key = key.private_bytes(serialization.Encoding.PEM, form, plain)
    cert, own = _new_server(certificate, ca_key, service_names("hooks", "ns"), now, "kueue")
    return Certificates(certificate, ca_key, cert, own)


def test_the_authority_of_the_go_manager_stays_when_names_are_missing(now):
    theirs = authority_of_the_go_manager(now)
    found = renewed(theirs, NAMES, now)
    assert (found.ca_cert, found.ca_key) == (theirs.ca_cert, theirs.ca_key)
    assert found.tls_cert != theirs.tls_cert
    assert judge(found).problem == ""
    assert judge(found).names.covers(NAMES)


def test_new_certificates_satisfy_a_strict_client(made, now):
    found = judge(made)
    assert found.problem == ""
    assert found.names == NAMES
    assert found.server_ends == pytest.approx(now + SERVER_LIFE, abs=5)
    assert found.authority_ends == pytest.approx(now + AUTHORITY_LIFE, abs=5)


def test_good_certificates_are_left_alone(made, now):
    assert renewed(made, NAMES, now) is made
    assert renewed(made, ServerNames({"localhost"}), now) is made


def test_a_new_name_gets_a_new_server_certificate_of_the_same_authority(made, now):
    again = renewed(made, ServerNames({"other"}), now)
    assert again.ca_cert == made.ca_cert
    assert judge(again).names == NAMES | ServerNames({"other"})


def test_a_server_certificate_that_is_about_to_end_is_replaced(made, now):
    later = now + SERVER_LIFE - RENEW_BEFORE + DAY
    again = renewed(made, NAMES, later)
    assert again.ca_cert == made.ca_cert
    assert again.tls_cert != made.tls_cert


def test_a_new_authority_is_trusted_together_with_the_one_before(made, now):
    later = now + AUTHORITY_LIFE - RENEW_BEFORE + DAY
    again = renewed(made, NAMES, later)
    assert again.ca_key != made.ca_key
    assert again.ca_cert.endswith(made.ca_cert)
    assert again.ca_cert.count(b"BEGIN CERTIFICATE") == 2


@pytest.mark.parametrize("field", ["ca_cert", "tls_cert", "tls_key"])
def test_broken_parts_lead_to_new_certificates(made, now, field):
    broken = attrs.evolve(made, **{field: b"rubbish"})
    assert judge(broken).problem
    assert judge(renewed(broken, NAMES, now)).problem == ""


def test_a_certificate_of_another_authority_is_a_problem(made, now):
    other = renewed(None, NAMES, now)
    assert judge(attrs.evolve(made, ca_cert=other.ca_cert)).problem


def test_judging_loads_no_cryptography():
    code = (
        "import sys; from kueuelib.runtime import certificates as ours;"
        "from kueuelib.runtime.webhook import server, trust;"
        "ours.judge(ours.Certificates(b'a', b'b', b'c', b'd'));"
        "print('cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


async def test_a_live_context_serves_a_new_certificate_to_new_connections(made, now):
    context = server_context()
    load(context, made)
    trust = ssl.create_default_context(cadata=made.ca_cert.decode())

    async def serial(port: int) -> tuple[object, asyncio.StreamWriter]:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        return writer.get_extra_info("peercert")["serialNumber"], writer

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(10))
        await writer.drain()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context, family=socket.AF_INET)
    port = server.sockets[0].getsockname()[1]
    first, old = await serial(port)
    load(context, renewed(made, NAMES | ServerNames({"more"}), now))
    second, new = await serial(port)
    assert first != second
    old.write(b"still open")
    await old.drain()
    for writer in (old, new):
        writer.close()
        await writer.wait_closed()
    server.close()
