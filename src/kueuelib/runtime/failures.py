"""How a program ends with an error: one line that names the fix, and an exit code.

Also which errors no retry can cure, and which ones only somebody's help.
"""

from __future__ import annotations

import sys

from kueuelib.errors import (
    ApiError,
    ConfigError,
    Conflict,
    Forbidden,
    KueuelibError,
    NotFound,
    ServerTimeout,
    TerminalError,
    TooManyRequests,
    TransportError,
    Unauthorized,
    Unavailable,
)
from kueuelib.runtime.network_errors import CHECK_PROXY, NoProxy

WRONG_INPUT = 2
"""The exit code when what was given cannot work."""
FAILED = 1
INTERRUPTED = 130
_PASSING = (Conflict, NotFound, TooManyRequests, Unauthorized, Unavailable, ServerTimeout)
_DENIED = ("denied the request", "denied request", "exceeded quota", "failed quota")
"""What an API server says about a refusal by a webhook, by a policy, and by a ResourceQuota."""
_ENDING = "because it is being terminated"
"""How an API server ends its message about something that is created in a deleted namespace."""


def reported(error: Exception, program: str) -> int:
    """Say one of our errors on stderr, without a traceback; the exit code.

    Args:
        error: what ended the program, or a group of one.
        program: whose voice it is.

    Raises:
        Exception: the error itself, if it is not one of ours.
    """
    cause = error
    while isinstance(cause, ExceptionGroup) and len(cause.exceptions) == 1:
        (cause,) = cause.exceptions
    if not isinstance(cause, KueuelibError):
        raise error
    said = with_fix(cause)
    prefix = "" if said.startswith(f"{program} ") else f"{program}: "
    print(f"{prefix}{said}", file=sys.stderr)  # noqa: T201 - the program's voice
    return WRONG_INPUT if isinstance(cause, ConfigError) else FAILED


def with_fix(error: Exception) -> str:
    """A failure and its fix; most of our own errors already contain both."""
    text = str(error)
    if _ENDING in text:
        return f"{text}; wait until it is gone: kubectl describe namespace says what keeps it"
    if isinstance(error, Forbidden) and not is_denied(error):
        return f"{text}; ask for this permission"
    if isinstance(error, Unauthorized):
        return f"{text}; check the user of the kubeconfig's context"
    if isinstance(error.__cause__, NoProxy):
        return f"{text}; {CHECK_PROXY}"
    if isinstance(error, TransportError) or (isinstance(error, ApiError) and error.code >= 500):
        return f"{text}; check the API server, then try again"
    return text


def is_denied(error: ApiError) -> bool:
    """Whether a webhook, a policy or a quota refused, and no permission is missing."""
    return any(words in str(error) for words in _DENIED)


def is_terminal(error: BaseException) -> bool:
    """Whether no retry can cure this error: a `TerminalError` in the chain of its causes.

    In a group, all errors must be terminal.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(is_terminal(each) for each in error.exceptions)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TerminalError):
            return True
        cause = cause.__cause__
    return False


def is_refusal(error: ApiError) -> bool:
    """Whether somebody has to act before a write can succeed: it breaks a rule, a quota or a
    policy, or a webhook does not answer. Other failures say that the object has changed, or that
    the server is busy or away.

    Args:
        error: the answer.
    """
    return not isinstance(error, _PASSING)
