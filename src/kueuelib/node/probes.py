"""Probes and hooks of containers: run one, and what its results mean."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio
import attrs
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

_MOST_OUTPUT: Final = 10 * 1024

Execute = Callable[[Sequence[str]], Awaitable[tuple[int, str]]]
"""Runs a command in the container, and returns its exit code and output."""


@attrs.frozen
class ProbeTally:
    """How often a probe has passed or failed in a row, and whether it counts as passing."""

    passing: bool
    successes: int = 0
    failures: int = 0

    def after(self, probe: Mapping[str, Any], problem: str) -> ProbeTally:
        """The tally after one more result; an empty problem is a success."""
        if problem:
            failures = self.failures + 1
            passing = self.passing and failures < (probe.get("failureThreshold") or 3)
            return ProbeTally(passing, 0, failures)
        successes = self.successes + 1
        passing = self.passing or successes >= (probe.get("successThreshold") or 1)
        return ProbeTally(passing, successes, 0)

    def exhausted(self, probe: Mapping[str, Any]) -> bool:
        """Whether it has failed as often as its threshold says."""
        return self.failures >= (probe.get("failureThreshold") or 3)


async def try_probe(
    probe: Mapping[str, Any], container: Mapping[str, Any], host: str, execute: Execute
) -> str:
    """Runs a probe or a hook once, within its time.

    Args:
        probe: raw, with `exec`, `httpGet`, `tcpSocket` or `sleep`.
        container: for the numbers of named ports.
        host: the address of the pod.
        execute: runs a command in the container.

    Returns:
        What is wrong; empty if nothing is.
    """
    seconds = probe.get("timeoutSeconds") or 1
    try:
        with anyio.fail_after(seconds):
            return await _try(probe, container, host, execute)
    except TimeoutError:
        return f"timed out after {seconds}s"
    except (OSError, anyio.BrokenResourceError, anyio.EndOfStream, ValueError) as error:
        return str(error) or type(error).__name__


async def _try(
    probe: Mapping[str, Any], container: Mapping[str, Any], host: str, execute: Execute
) -> str:
    if command := (probe.get("exec") or {}).get("command"):
        code, output = await execute(command)
        return (output.strip() or f"exit code {code}") if code else ""
    if request := probe.get("httpGet"):
        return await _get(request, request.get("host") or host, _port(container, request["port"]))
    if target := probe.get("tcpSocket"):
        port = _port(container, target["port"])
        await (await anyio.connect_tcp(target.get("host") or host, port)).aclose()
    elif pause := probe.get("sleep"):
        await anyio.sleep(pause["seconds"])
    return ""


def _port(container: Mapping[str, Any], port: int | str) -> int:
    if isinstance(port, str) and not port.isdigit():
        for each in container.get("ports") or ():
            if each.get("name") == port:
                return int(each["containerPort"])
        raise ValueError(f"port {port!r} is not a port of container {container['name']!r}")
    return int(port)


async def _get(request: Mapping[str, Any], host: str, port: int) -> str:
    stream: ByteStream = await anyio.connect_tcp(host, port)
    try:
        if request.get("scheme") == "HTTPS":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            stream = await TLSStream.wrap(
                stream, server_side=False, ssl_context=context, standard_compatible=False
            )
        given = {each["name"].lower(): each["value"] for each in request.get("httpHeaders") or ()}
        standard = {"host": f"{host}:{port}", "user-agent": "kube-probe", "accept": "*/*"}
        headers = {**standard, **given, "connection": "close"}
        path = request.get("path") or "/"
        lines = [f"GET {path if path.startswith('/') else '/' + path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if any("\r" in line or "\n" in line for line in lines):
            return "the path and headers of httpGet must not have line breaks"
        await stream.send(("\r\n".join(lines) + "\r\n\r\n").encode())
        data = b""
        while b"\r\n" not in data and len(data) < _MOST_OUTPUT:
            data += await stream.receive()
        code = data.split(b" ", 2)[1]
    except IndexError:
        return "the answer is not HTTP"
    finally:
        with anyio.move_on_after(0.1, shield=True), suppress(OSError, anyio.BrokenResourceError):
            await stream.aclose()
    passed = code.isdigit() and 200 <= int(code) < 400
    return "" if passed else f"HTTP probe failed with statuscode: {code.decode(errors='replace')}"
