"""`kueuelib run`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import load_configuration
from kueuelib.app.own_process import assembler, own_configuration
from kueuelib.app.programs import load
from kueuelib.app.wiring import run_manager
from kueuelib.checks import serve
from kueuelib.errors import ConfigError
from kueuelib.jobs.contract.integration import Integration
from kueuelib.runtime import logs
from kueuelib.runtime.addresses import parse_address
from kueuelib.runtime.entry import run_program
from kueuelib.runtime.operator.declaration import Operator
from kueuelib.runtime.operator.program import ServeOptions
from kueuelib.runtime.operator.program import serve as serve_operator


@attrs.frozen
class RunOptions:
    """The options that replace values of the configuration; None: the configuration decides."""

    namespace: str | None = None
    webhook_address: str | None = None
    health_address: str | None = None
    metrics_address: str | None = None
    leader_elect: bool | None = None
    clusters: Mapping[str, Path] = MappingProxyType({})


def run(
    reference: str,
    kubeconfig: Path | None,
    config: Path | None,
    log_format: str,
    log_level: str,
    server_timeout: float,
    **replaced: Any,
) -> int:
    """Runs the operator, the checks or the integration until SIGTERM or SIGINT; returns the exit
    code.

    Args:
        reference: `MODULE[:NAME]`.
        kubeconfig: the cluster; found by kubectl's rules when None.
        config: the manager's configuration file.
        log_format: of its log.
        log_level: the lowest level that is logged.
        server_timeout: seconds to wait for the API server at the start.
        replaced: the fields of `RunOptions`.

    Raises:
        ConfigError: an argument or a file is not valid.
    """
    options = RunOptions(**replaced)
    logs.configure(log_format, log_level)
    program = load(reference)
    if options.clusters and not isinstance(program, Operator):
        raise ConfigError("--cluster", "is for operators only", "leave it out")
    if isinstance(program, Operator):
        if config is not None:
            raise ConfigError("--config", "is for kinds of jobs, not for operators", "leave it out")
        run_program(serve_operator, program, _serve_options(options, kubeconfig, server_timeout))
    elif isinstance(program, Integration):
        base = with_options(load_configuration(config), options)
        configuration = own_configuration(base, program)
        source = str(config) if config else f"kueuelib run {reference}"
        manage = partial(run_manager, assemble=assembler(program))
        run_program(manage, configuration, source, kubeconfig, server_timeout)
    else:
        _check_options(options, config)
        start = partial(
            serve,
            *program,
            kubeconfig=kubeconfig,
            server_timeout=server_timeout,
            namespace=options.namespace or "",
            leader_elect=options.leader_elect is not False,
        )
        run_program(start)
    return 0


def _check_options(options: RunOptions, config: Path | None) -> None:
    """Refuse what a process with checks does not have."""
    given = {
        "--config": config,
        "--webhook-address": options.webhook_address,
        "--health-address": options.health_address,
        "--metrics-address": options.metrics_address,
    }
    for option, value in given.items():
        if value is not None:
            raise ConfigError(option, "is not for admission checks", "leave it out")


def _serve_options(
    options: RunOptions, kubeconfig: Path | None, server_timeout: float
) -> ServeOptions:
    addresses = {
        "webhook_address": options.webhook_address,
        "health_address": options.health_address,
        "metrics_address": options.metrics_address,
    }
    return ServeOptions(
        kubeconfig=kubeconfig,
        clusters=options.clusters,
        namespace=options.namespace or "",
        leader_elect=options.leader_elect is not False,
        server_timeout=server_timeout,
        **{name: text for name, text in addresses.items() if text is not None},
    )


def with_options(base: Configuration, options: RunOptions) -> Configuration:
    """The configuration with the options of the command line.

    Raises:
        ConfigError: an address is malformed.
    """
    configuration = base
    if options.namespace is not None:
        configuration = attrs.evolve(configuration, namespace=options.namespace)
    if options.webhook_address is not None:
        address = parse_address(options.webhook_address, "--webhook-address")
        if address is None:
            raise ConfigError("--webhook-address", "webhooks are needed", "write HOST:PORT")
        host, port = address
        configuration = attrs.evolve(
            configuration, webhook=attrs.evolve(configuration.webhook, host=host, port=port)
        )
    if options.health_address is not None:
        health = attrs.evolve(
            configuration.health, health_probe_bind_address=options.health_address
        )
        configuration = attrs.evolve(configuration, health=health)
    if options.metrics_address is not None:
        metrics = attrs.evolve(configuration.metrics, bind_address=options.metrics_address)
        configuration = attrs.evolve(configuration, metrics=metrics)
    if options.leader_elect is not None:
        election = attrs.evolve(configuration.leader_election, leader_elect=options.leader_elect)
        configuration = attrs.evolve(configuration, leader_election=election)
    return configuration
