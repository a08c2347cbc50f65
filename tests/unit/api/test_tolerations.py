from __future__ import annotations

import pytest

from kueuelib.api.core import Taint, Toleration
from kueuelib.api.nodes import tolerates, untolerated

TAINT = Taint("spot", "NoSchedule", "yes")


@pytest.mark.parametrize(
    ("toleration", "wanted"),
    [
        (Toleration("spot", "Equal", "yes", "NoSchedule"), True),
        (Toleration("spot", "", "yes", ""), True),
        (Toleration("spot", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("", "Exists", effect="NoExecute"), False),
        (Toleration("spot", "Equal", "no"), False),
        (Toleration("spot"), False),
        (Toleration("other", "Exists"), False),
        (Toleration("spot", "Like", "yes"), False),
    ],
)
def test_a_toleration_covers_a_taint(toleration, wanted):
    assert tolerates(toleration, TAINT) is wanted


def test_the_first_taint_that_nobody_tolerates_is_found():
    soft, hard = Taint("soft", "PreferNoSchedule"), Taint("hard", "NoExecute")
    assert untolerated((soft, TAINT, hard), (Toleration("spot", "Exists"),)) is hard
    assert untolerated((soft,), ()) is None
    assert untolerated((soft,), (), effects=("PreferNoSchedule",)) is soft
    assert untolerated((TAINT, hard), (Toleration("", "Exists"),)) is None
