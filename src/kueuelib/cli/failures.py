"""Failures of a running command, each in one line that names the fix."""

from __future__ import annotations

from kueuelib.errors import (
    ApiError,
    Forbidden,
    KueuelibError,
    TransportError,
    Unauthorized,
)

_DENIED = "denied the request"
"""The message of an API server about a refusal by a webhook."""


def with_fix(error: KueuelibError) -> str:
    """A failure and its fix; most of our own errors already contain both.

    Args:
        error: what ended the command.
    """
    text = str(error)
    if isinstance(error, Forbidden) and _DENIED not in text:
        return f"{text}; ask for this permission"
    if isinstance(error, Unauthorized):
        return f"{text}; check the user of the kubeconfig's context"
    if isinstance(error, TransportError) or (isinstance(error, ApiError) and error.code >= 500):
        return f"{text}; check the API server, then try again"
    return text
