"""What `kueuelib run` and `kueuelib manifests` are given: an operator, a job kind, or checks."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from kueuelib.checks.definition import Check, checks_in
from kueuelib.errors import ConfigError
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.plugins import as_integration, candidates, integration_in, own_kind
from kueuelib.runtime.importing import module_at, name_in
from kueuelib.runtime.operator.declaration import Operator

Program = Operator | Integration | tuple[Check, ...]
"""Several checks run in one process."""


def load(reference: str) -> Program:
    """What runs under `MODULE[:NAME]`; the module may also be the path of a file.

    Without a name it is the only thing in the module that can run, or all of its checks.

    Args:
        reference: for example `training`, `team.training:integration` or `jobs/training.py`. A
            module is looked for in the current folder too.

    Raises:
        ConfigError: there is no such module or name, it cannot be imported, it offers nothing or
            too much, or a job kind that comes with kueuelib.
    """
    where, colon, name = reference.rpartition(":") if ":" in reference else (reference, "", "")
    module = module_at(where)
    program = _named(module, reference, where, name) if colon else _only(module, reference)
    return own_kind(program, reference) if isinstance(program, Integration) else program


def _named(module: ModuleType, reference: str, where: str, name: str) -> Program:
    program = name_in(module, name)
    if isinstance(program, Operator):
        return program
    if isinstance(program, Check):
        return (program,)
    integration = as_integration(program, reference)
    if integration is not None:
        return integration
    if not name:
        problem = "no name follows the colon"
    elif program is None:
        problem = f"{where} has no {name}"
    else:
        problem = f"{name} is neither an operator nor a job kind nor a check"
    raise ConfigError(reference, problem, f"{where} offers {_offered(module) or 'nothing'}")


def _only(module: ModuleType, reference: str) -> Program:
    operators, checks = _operators(module), checks_in(module)
    kinds = () if operators or checks else candidates(module)
    if bool(operators) + bool(checks) > 1 or len({id(each) for each in operators.values()}) > 1:
        raise ConfigError(
            reference,
            "holds more than one program",
            f"write MODULE:NAME; it offers {_offered(module)}",
        )
    if not (operators or checks or kinds):
        raise ConfigError(
            reference,
            "holds nothing to run",
            "make an Operator, declare a job kind, or decorate a function with @check",
        )
    if operators:
        return next(iter(operators.values()))
    return checks or integration_in(module, reference)


def _operators(module: ModuleType) -> dict[str, Operator]:
    return {name: each for name, each in vars(module).items() if isinstance(each, Operator)}


def _offered(module: ModuleType) -> str:
    """What a module has to run, by name."""
    checks = (name for name, each in vars(module).items() if isinstance(each, Check))
    kinds: dict[str, Any] = candidates(module)
    names = [
        *(f"{name} (operator)" for name in _operators(module)),
        *(f"{name} (job kind)" for name in sorted(kinds)),
        *(f"{name} (check)" for name in checks),
    ]
    return ", ".join(names)
