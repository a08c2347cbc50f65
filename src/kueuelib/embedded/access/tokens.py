"""ServiceAccount tokens: signed here, and accepted while their account exists."""

from __future__ import annotations

import base64
import binascii
import hashlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from kueuelib.api.kinds import NODES, PODS, SECRETS, SERVICE_ACCOUNTS
from kueuelib.api.meta import Obj, ObjectKey, format_time
from kueuelib.embedded import failures
from kueuelib.embedded.access.attributes import AUTHENTICATED
from kueuelib.embedded.access.rbac import ACCOUNT_PREFIX
from kueuelib.embedded.admission.plugin import StoreReader, UserInfo
from kueuelib.embedded.builtins.fields import invalid, section
from kueuelib.errors import BadRequest, Conflict
from kueuelib.runtime.certificates import pem_of

ISSUER = "https://kubernetes.default.svc.cluster.local"
ACCOUNTS_GROUP = "system:serviceaccounts"
MINIMUM_SECONDS = 600
DEFAULT_SECONDS = 3600
MAXIMUM_SECONDS = 2**32
_CACHE_LIMIT = 1024
_SIZE = 32
_BOUND = {"Pod": PODS, "Secret": SECRETS, "Node": NODES}
_KIND, _GROUP = "TokenRequest", "authentication.k8s.io"
_CREDENTIAL = "authentication.kubernetes.io/credential-id"


@attrs.frozen
class Verified:
    """A verified token.

    Attributes:
        caller: its owner.
        audiences: its audiences.
    """

    caller: UserInfo
    audiences: tuple[str, ...]


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    if "=" in text:
        raise ValueError("a token has no padding")
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


class Tokens:
    """Signs and verifies tokens with its own key.

    Args:
        reader: reads accounts, and objects that tokens are bound to.
    """

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._known: dict[str, Mapping[str, Any]] = {}
        self._use(ec.generate_private_key(ec.SECP256R1()))

    @property
    def pem(self) -> bytes:
        """The private key."""
        return pem_of(self._key)

    def adopt(self, pem: bytes) -> None:
        """Continues with the key of an earlier process, so that its tokens stay valid.

        Raises:
            ValueError: it is not such a key.
        """
        key = serialization.load_pem_private_key(pem, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key that signs tokens is of another type")  # noqa: TRY004
        self._use(key)

    def _use(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        numbers = key.public_key().public_numbers()
        self._x, self._y = (each.to_bytes(_SIZE, "big") for each in (numbers.x, numbers.y))
        self._id = _encode(hashlib.sha256(self._x + self._y).digest())

    # ---- giving

    def request(self, account: ObjectKey, given: Obj, now: float) -> Obj:
        """The answered `TokenRequest` for an account.

        Raises:
            NotFound: the account, or the object that the token should be bound to, does not exist.
            BadRequest: it cannot be bound to that.
            Conflict: the object has another UID.
            Invalid: the lifetime is too short or too long, or it names another account.
        """
        meta, spec = given["metadata"], given.get("spec") or {}
        if meta.get("name") not in (None, "", account.name):
            text = "must match the service account name if specified"
            error = invalid("metadata.name", meta["name"], text)
            raise failures.invalid_named(_KIND, _GROUP, account.name, [error])
        service_account = self._reader.get(SERVICE_ACCOUNTS, account)
        if service_account is None:
            raise failures.absent("serviceaccounts", account.name)
        seconds = spec.get("expirationSeconds")
        seconds = DEFAULT_SECONDS if seconds is None else seconds
        if not isinstance(seconds, int) or not MINIMUM_SECONDS <= seconds <= MAXIMUM_SECONDS:
            raise _bad_lifetime(account.name, seconds)
        audiences = list(spec.get("audiences") or (ISSUER,))
        bound = self._bound(account, spec.get("boundObjectRef"))
        token = self._sign(service_account, audiences, bound, int(now), int(seconds))
        status = {"token": token, "expirationTimestamp": format_time(int(now) + seconds)}
        meta = {
            "name": account.name,
            "namespace": account.namespace,
            "creationTimestamp": format_time(now),
        }
        return {
            "kind": _KIND,
            "apiVersion": f"{_GROUP}/v1",
            "metadata": meta,
            "spec": {
                "audiences": audiences,
                "expirationSeconds": seconds,
                "boundObjectRef": spec.get("boundObjectRef"),
            },
            "status": status,
        }

    def _bound(self, account: ObjectKey, ref: Any) -> dict[str, Any]:
        if ref is None:
            return {}
        resource = _BOUND.get(ref.get("kind"))
        if resource is None:
            version = str(ref.get("apiVersion") or "")
            shown = version if "/" in version else f"/{version}"
            raise BadRequest(
                f"cannot bind token to object of type {shown}, Kind={ref.get('kind') or ''}"
            )
        name = ref.get("name") or ""
        target = self._reader.get(
            resource, ObjectKey(account.namespace if resource.namespaced else "", name)
        )
        if target is None:
            raise failures.absent(resource.plural, name)
        uid = target["metadata"]["uid"]
        if ref.get("uid") and ref["uid"] != uid:
            raise Conflict(
                f'Operation cannot be fulfilled on {resource.kind} "{name}": the UID in the bound '
                f"object reference ({ref['uid']}) does not match the UID in record. The object "
                "might have been deleted and then recreated",
                details={"name": name, "kind": resource.kind},
            )
        spec = target.get("spec") or {}
        if resource.kind == "Pod" and spec.get("serviceAccountName") != account.name:
            raise BadRequest(
                f'cannot bind token for serviceaccount "{account.name}" to pod running with '
                "different serviceaccount name."
            )
        return {resource.kind.lower(): {"name": name, "uid": uid}}

    def _sign(
        self, account: Obj, audiences: Sequence[str], bound: Obj, now: int, seconds: int
    ) -> str:
        meta = account["metadata"]
        claims = {
            "aud": audiences,
            "exp": now + seconds,
            "iat": now,
            "iss": ISSUER,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": {
                "namespace": meta["namespace"],
                **bound,
                "serviceaccount": {"name": meta["name"], "uid": meta["uid"]},
            },
            "nbf": now,
            "sub": f"{ACCOUNT_PREFIX}{meta['namespace']}:{meta['name']}",
        }
        head = {"alg": "ES256", "kid": self._id}
        body = f"{_encode(orjson.dumps(head))}.{_encode(orjson.dumps(claims))}"
        first, second = decode_dss_signature(
            self._key.sign(body.encode(), ec.ECDSA(hashes.SHA256()))
        )
        signature = first.to_bytes(_SIZE, "big") + second.to_bytes(_SIZE, "big")
        return f"{body}.{_encode(signature)}"

    # ---- believing

    def verify(self, token: str, now: float) -> Verified | None:
        """The owner of a token; None if it is not ours, has expired, or its account is gone."""
        claims = self._known.get(token)
        if claims is None:
            claims = self._signed(token)
            if claims is None:
                return None
            if len(self._known) >= _CACHE_LIMIT:
                self._known.clear()
            self._known[token] = claims
        if not claims["nbf"] <= now < claims["exp"] + 1:
            self._known.pop(token, None)
            return None
        about = claims["kubernetes.io"]
        namespace, account = about["namespace"], about["serviceaccount"]
        if not self._is_there(SERVICE_ACCOUNTS, namespace, account):
            return None
        extra: dict[str, Sequence[str]] = {_CREDENTIAL: [f"JTI={claims['jti']}"]}
        for resource in _BOUND.values():
            ref = about.get(resource.kind.lower())
            if ref is None:
                continue
            if not self._is_there(resource, namespace, ref):
                return None
            prefix = f"authentication.kubernetes.io/{resource.kind.lower()}"
            extra[f"{prefix}-name"], extra[f"{prefix}-uid"] = [ref["name"]], [ref["uid"]]
        groups = (ACCOUNTS_GROUP, f"{ACCOUNTS_GROUP}:{namespace}", AUTHENTICATED)
        return Verified(
            UserInfo(claims["sub"], account["uid"], groups, extra), tuple(claims["aud"])
        )

    def _is_there(self, resource: Any, namespace: str, ref: Mapping[str, Any]) -> bool:
        key = ObjectKey(namespace if resource.namespaced else "", ref["name"])
        obj = self._reader.get(resource, key)
        return obj is not None and obj["metadata"]["uid"] == ref["uid"]

    def _signed(self, token: str) -> Mapping[str, Any] | None:
        body, dot, signature = token.rpartition(".")
        head, second_dot, claims = body.partition(".")
        if not dot or not second_dot:
            return None
        try:
            if orjson.loads(_decode(head)).get("kid") != self._id:
                return None
            raw = _decode(signature)
            both = encode_dss_signature(
                int.from_bytes(raw[:_SIZE], "big"), int.from_bytes(raw[_SIZE:], "big")
            )
            self._key.public_key().verify(both, body.encode(), ec.ECDSA(hashes.SHA256()))
            payload: Mapping[str, Any] = orjson.loads(_decode(claims))
        except (binascii.Error, ValueError, AttributeError, InvalidSignature):
            return None
        return payload

    # ---- informing others

    def configuration(self) -> Obj:
        """`/.well-known/openid-configuration`."""
        return {
            "issuer": ISSUER,
            "jwks_uri": f"{ISSUER}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }

    def keys(self) -> Obj:
        """`/openid/v1/jwks`."""
        key = {
            "use": "sig",
            "kty": "EC",
            "kid": self._id,
            "crv": "P-256",
            "alg": "ES256",
            "x": _encode(self._x),
            "y": _encode(self._y),
        }
        return {"keys": [key]}


def _bad_lifetime(name: str, seconds: Any) -> Exception:
    text = "may not specify a duration larger than 2^32 seconds"
    if not isinstance(seconds, int) or seconds < MINIMUM_SECONDS:
        text = "may not specify a duration less than 10 minutes"
    return failures.invalid_named(
        _KIND, _GROUP, name, [invalid("spec.expirationSeconds", seconds, text)]
    )


def token_request(account: ObjectKey, given: Any) -> Obj:
    """The body of a request for a token.

    Raises:
        BadRequest: it is not a TokenRequest, or one for another namespace.
    """
    asked = {} if given is None else given
    if not isinstance(asked, dict) or asked.get("kind", _KIND) != _KIND:
        raise BadRequest(f"a {_KIND} is expected")
    meta = {"namespace": account.namespace, **section(asked, "metadata")}
    if meta["namespace"] != account.namespace:
        raise failures.other_namespace()
    return {**asked, "apiVersion": f"{_GROUP}/v1", "kind": _KIND, "metadata": meta}
