"""Which refusals are said to be a missing permission."""

from __future__ import annotations

import pytest

from kueuelib.errors import Forbidden
from kueuelib.runtime.failures import with_fix


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        ('User "a" cannot patch resource "jobs"', "; ask for this permission"),
        ("exceeded quota: tight, requested: count/secrets=1", ""),
        ("ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no", ""),
        (
            "unable to create new content in namespace n because it is being terminated",
            "; wait until it is gone: kubectl describe namespace says what keeps it",
        ),
        ('admission webhook "a" denied the request: no', ""),
    ],
)
def test_a_permission_is_asked_for_only_if_it_is_missing(message: str, fix: str) -> None:
    assert with_fix(Forbidden(message)) == f"{message}{fix}"
