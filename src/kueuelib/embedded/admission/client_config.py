"""The rules for a `clientConfig`, the address of a webhook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, urlsplit

from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import invalid, required
from kueuelib.errors import FieldError

_LAST_PORT = 65535
_FORM = "; desired format: https://host[/path]"


def validate_client(client: Mapping[str, Any], path: str) -> list[FieldError]:
    """Check that there is exactly one of a URL and a service, and that it is valid.

    Args:
        client: the configuration, with defaults.
        path: of it.
    """
    url, service = client.get("url"), client.get("service")
    if (url is None) is (service is None):
        return [required(path, "exactly one of url or service is required")]
    if service is not None:
        return _validate_service(service, f"{path}.service")
    try:
        return _validate_url(urlsplit(url or ""), f"{path}.url")
    except ValueError as error:
        text = f'url must be a valid URL: parse "{url}": {error}{_FORM}'
        return [required(f"{path}.url", text)]


def validate_reviews(reviews: Sequence[str], path: str) -> list[FieldError]:
    """Check the versions of reviews that a webhook accepts."""
    errors = [
        invalid(f"{path}[{i}]", text, why)
        for i, text in enumerate(reviews)
        for why in (["duplicate version"] if text in reviews[:i] else naming.label_1035(text))
    ]
    if not {"v1", "v1beta1"} & set(reviews):
        text = "must include at least one of v1, v1beta1"
        errors.append(invalid(path, list(reviews), text))
    return errors


def _validate_url(url: SplitResult, path: str) -> list[FieldError]:
    user, at, host = url.netloc.rpartition("@")
    broken = (
        (url.scheme != "https", url.scheme, f"'https' is the only allowed URL scheme{_FORM}"),
        (not host, host, f"host must be specified{_FORM}"),
        (at, user, "user information is not permitted in the URL"),
        (url.fragment, url.fragment, "fragments are not permitted in the URL"),
        (url.query, url.query, "query parameters are not permitted in the URL"),
    )
    return [invalid(path, value, text) for wrong, value, text in broken if wrong]


def _validate_service(service: Mapping[str, Any], path: str) -> list[FieldError]:
    # Kubernetes calls the one by the name of the other.
    errors = [
        required(f"{path}.{shown}")
        for key, shown in (("namespace", "name"), ("name", "namespace"))
        if not service.get(key)
    ]
    port = service.get("port")
    if not isinstance(port, int) or not 1 <= port <= _LAST_PORT:
        text = f"port is not valid: must be between 1 and {_LAST_PORT}, inclusive"
        errors.append(invalid(f"{path}.port", port, text))
    return [*errors, *_validate_path(service.get("path") or "/", f"{path}.path")]


def _validate_path(text: str, path: str) -> list[FieldError]:
    if text == "/":
        return []
    if text == "//":
        return [invalid(path, text, "segment[0] may not be empty")]
    errors: list[FieldError] = []
    if not text.startswith("/"):
        errors.append(invalid(path, text, "must start with a '/'"))
    for i, step in enumerate(text[1:].removesuffix("/").split("/")):
        if not step:
            errors.append(invalid(path, text, f"segment[{i}] may not be empty"))
            continue
        errors += [invalid(path, text, f"segment[{i}]: {why}") for why in naming.subdomain(step)]
    return errors
