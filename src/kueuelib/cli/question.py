"""The option `--explain JOB@TIME` of commands that go through a time that is over."""

from __future__ import annotations

from kueuelib.api.meta import ObjectKey
from kueuelib.errors import ConfigError
from kueuelib.simulator.faults import BadValue
from kueuelib.simulator.parsing import moment
from kueuelib.simulator.play import Question


def question(text: str, namespace: str = "") -> Question:
    """The question in `--explain`.

    Args:
        text: the value of the option.
        namespace: of a job that is named without one.

    Raises:
        ConfigError: it does not name a job and a time.
    """
    job, at, when = text.rpartition("@")
    named, _, name = job.rpartition("/")
    fix = "write [NAMESPACE/]JOB@TIME"
    if not at or not name:
        raise ConfigError(f"--explain {text}", "does not name a job and a time", fix)
    try:
        return Question(ObjectKey(named or namespace, name), moment(when, "time"))
    except BadValue as error:
        raise ConfigError(f"--explain {text}", error.reason, fix) from error
