"""Failures of a command that ran, each said in one line that names the fix."""

from __future__ import annotations

from kueuelib.errors import (
    ApiError,
    Forbidden,
    KueuelibError,
    TransportError,
    Unauthorized,
)

_DENIED = "denied the request"
"""What an API server says when a webhook refused something."""


def with_fix(error: KueuelibError) -> str:
    """A failure and what to do about it; most errors of our own say both.

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
