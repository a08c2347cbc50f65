"""`kueuelib install` and `kueuelib uninstall`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path

import anyio
import attrs

from kueuelib.api.kinds import V1BETA2, VERSIONS
from kueuelib.api.yaml_text import to_yaml
from kueuelib.app.configuration import Configuration, VisibilityConfiguration
from kueuelib.app.configuration_reading import UNREADABLE, read_configuration
from kueuelib.app.deployment import Deployed, certificates_of, check_configuration, checked_image
from kueuelib.app.installation import Installation, check_namespace, checked_url, install
from kueuelib.app.packages import write_chart, write_kustomize
from kueuelib.app.refusers import find_remedy, lacks_permission
from kueuelib.app.uninstallation import Removal, uninstall
from kueuelib.errors import ApiError, ConfigError
from kueuelib.runtime import logs
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import ATTEMPT_TIMEOUT, connect, wait_for_server
from kueuelib.runtime.yaml_files import read_text

# ---- `kueuelib uninstall` ------------------------------------------------------------------------


def run_uninstall(
    kubeconfig: Path | None, namespace: str, server_timeout: float, *, force: bool, keep_kinds: bool
) -> None:
    """Removes what `kueuelib install` wrote.

    Raises:
        ConfigError: Workloads hold quota, or the kinds were not removed in time.
        ApiError: the server refused something.
    """
    logs.configure("console", "info")
    every = Deployed(
        service_monitor=True, dashboards=True, visibility_port=VisibilityConfiguration().bind_port
    )
    check_namespace(namespace)
    installation = Installation(namespace, deployed=every)
    removal = Removal(installation, force, keep_kinds)
    for line in anyio.run(_uninstall, kubeconfig, removal, server_timeout):
        sys.stdout.write(f"{line}\n")


async def _uninstall(kubeconfig: Path | None, removal: Removal, patience: float) -> list[str]:
    async with await connect(kubeconfig, user_agent="kueuelib-uninstall") as client:
        await wait_for_server(client, patience, starting=False)
        hurried = client.hurried(max(patience, ATTEMPT_TIMEOUT))
        async with _remedies(hurried, removal.installation.namespace):
            return await uninstall(hurried, removal, patience)


@asynccontextmanager
async def _remedies(client: Client, namespace: str) -> AsyncIterator[None]:
    """Adds to the refusal of a write what to do about the policy, quota or webhook behind it.

    Raises:
        ApiError: the server refused something.
    """
    try:
        yield
    except ApiError as error:
        message = error.message
        fix = "" if lacks_permission(message) else await find_remedy(client, message, namespace)
        if not fix:
            raise
        raise ApiError(f"{message}; {fix}", code=error.code, reason=error.reason) from error


# --------------------------------------------------------------------------------------------------


@attrs.frozen(slots=False)
class InstallOptions:
    """The options for the manager's pods.

    Attributes:
        image: None for the default.
        replicas: how many pods.
        config: the configuration file; None for the default.
        service_monitor: whether to write a ServiceMonitor.
        dashboards: whether to write the dashboard for Grafana.
        without_v1beta1: whether only `v1beta2` is served.
    """

    image: str | None = None
    replicas: int = 2
    config: Path | None = None
    service_monitor: bool = False
    dashboards: bool = False
    without_v1beta1: bool = False

    def deployed(self, namespace: str, webhook_url: str | None) -> Deployed | None:
        """The manager's pods; None when it runs elsewhere.

        Raises:
            ConfigError: the configuration cannot work, or the number of pods is 0.
        """
        if webhook_url is not None:
            if self != InstallOptions(config=self.config, without_v1beta1=self.without_v1beta1):
                raise ConfigError(
                    "--webhook-url",
                    "the manager runs outside the cluster, without a Deployment",
                    "leave out --image, --replicas, --service-monitor and --dashboards",
                )
            return None
        deployed = Deployed(
            replicas=self.replicas,
            service_monitor=self.service_monitor,
            dashboards=self.dashboards,
        )
        if self.image is not None:
            deployed = attrs.evolve(deployed, image=checked_image(self.image))
        if self.config is not None:
            check_configuration(self.configuration, self.config, namespace, deployed)
            deployed = attrs.evolve(
                deployed,
                config=self._text,
                visibility_port=self.visibility_port,
                certificates=certificates_of(self.configuration, self.config),
            )
        return deployed

    @cached_property
    def _text(self) -> str:
        """The content of the file, which may be a pipe that can be read only once."""
        assert self.config is not None
        return read_text(self.config, UNREADABLE)

    @cached_property
    def configuration(self) -> Configuration:
        """The configuration; the default one without a file.

        Raises:
            ConfigError: it cannot work.
        """
        return read_configuration(self._text, str(self.config)) if self.config else Configuration()

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The kinds that the configuration enables, for which more is written."""
        return self.configuration.integrations.frameworks if self.config else ()

    @property
    def versions(self) -> tuple[str, ...]:
        """In which versions of the API objects are served."""
        return (V1BETA2,) if self.without_v1beta1 else VERSIONS

    @property
    def secret(self) -> str:
        """The name of the Secret with the certificate of the webhooks."""
        return self.configuration.internal_cert_management.webhook_secret_name

    @property
    def visibility_port(self) -> int | None:
        """Where the manager serves the visibility API; None if not."""
        server = self.configuration.visibility_server
        return None if server is None else server.bind_port


def write_packages(
    options: InstallOptions, namespace: str, chart: Path | None, base: Path | None
) -> None:
    """Writes a Helm chart, a kustomize base, or both, and prints the files.

    Raises:
        ConfigError: the configuration cannot work, or a folder cannot be written.
    """
    deployed = options.deployed(namespace, None)
    assert deployed is not None  # there is no URL
    try:
        installation = Installation(
            namespace,
            deployed=deployed,
            frameworks=options.frameworks,
            versions=options.versions,
            secret=options.secret,
        )
        files = write_chart(chart, installation) if chart else []
        check_namespace(namespace)
        files += write_kustomize(base, installation) if base else []
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(
            str(error.filename), problem, "give a folder that can be written"
        ) from error
    sys.stdout.writelines(f"{path} written\n" for path in files)


def run(
    kubeconfig: Path | None,
    webhook_url: str | None,
    namespace: str,
    server_timeout: float,
    options: InstallOptions,
    *,
    print_only: bool,
) -> None:
    """Installs, or prints what would be installed.

    Raises:
        ConfigError: an argument or a file is not valid, or the kinds are not served in time.
        ApiError: the server refused something.
    """
    check_namespace(namespace)
    installation = Installation(
        namespace,
        checked_url(webhook_url),
        options.deployed(namespace, webhook_url),
        options.frameworks,
        options.configuration.internal_cert_management.enable,
        options.visibility_port,
        options.versions,
        options.secret,
    )
    if print_only:
        sys.stdout.write("---\n".join(to_yaml(obj) for obj in installation.manifests()))
        return
    logs.configure("console", "info")
    anyio.run(_install, kubeconfig, installation, server_timeout)


async def _install(
    kubeconfig: Path | None, installation: Installation, server_timeout: float
) -> None:
    async with await connect(kubeconfig, user_agent="kueuelib-install") as client:
        await wait_for_server(client, server_timeout)
        hurried = client.hurried(max(server_timeout, ATTEMPT_TIMEOUT))
        async with _remedies(hurried, installation.namespace):
            await install(hurried, installation, server_timeout, _print)


def _print(line: str) -> None:
    """Prints a line at once, wherever to."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
