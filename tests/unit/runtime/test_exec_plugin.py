"""Credentials of plug-ins: what they are told, and what becomes of their answers."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from kueuelib.errors import ConfigError
from kueuelib.runtime import kubeconfig
from kueuelib.runtime.kubeconfig import ExecCredential, ask_plugin

V1, V1BETA1 = (f"client.authentication.k8s.io/{each}" for each in ("v1", "v1beta1"))


@pytest.fixture
def program(tmp_path: Path) -> Any:
    """Makes a plug-in that runs a piece of Python."""

    def make(code: str) -> str:
        path = tmp_path / "plugin"
        path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{code}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


def answering(status: Any, version: str = V1) -> str:
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    return f"print({json.dumps(answer)!r})"


async def ask(command: str, **more: Any) -> ExecCredential:
    cluster = {"server": "https://h:1"}
    return await ask_plugin({"apiVersion": V1, "command": command, **more}, cluster, "config")


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_a_token_and_its_end_are_read(program: Any, version: str) -> None:
    status = {"token": " t\n", "expirationTimestamp": "1970-01-01T01:00:00+00:00"}
    got = await ask(program(answering(status, version)), apiVersion=version)
    assert got == ExecCredential("t", expiry=3600.0)


async def test_a_certificate_is_read(program: Any) -> None:
    status = {"clientCertificateData": "CERT", "clientKeyData": "KEY"}
    assert await ask(program(answering(status))) == ExecCredential(None, b"CERT", b"KEY")


async def test_arguments_environment_and_the_question_reach_the_plugin(
    program: Any, tmp_path: Path
) -> None:
    (tmp_path / "ca").write_text("CA")
    code = (
        "told = [sys.argv[1:], os.environ['MINE'], os.environ['PATH'] != '',"
        " json.loads(os.environ['KUBERNETES_EXEC_INFO'])]\n"
        f"print(json.dumps({{'apiVersion': {V1!r}, 'kind': 'ExecCredential',"
        " 'status': {'token': json.dumps(told).encode().hex()}}))"
    )
    plugin = {
        "apiVersion": V1,
        "command": program(code),
        "args": ["--a", 1],
        "env": [{"name": "MINE", "value": "x"}],
        "provideClusterInfo": True,
    }
    cluster = {
        "server": "https://h",
        "certificate-authority": str(tmp_path / "ca"),
        "tls-server-name": "n",
        "extensions": [
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}},
        ],
    }
    got = await ask_plugin(plugin, cluster, "config")
    arguments, mine, path, info = json.loads(bytes.fromhex(got.token or ""))
    assert (arguments, mine, path) == (["--a", "1"], "x", True)
    assert info == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://h",
                "certificate-authority-data": base64.b64encode(b"CA").decode(),
                "tls-server-name": "n",
                "config": {"audience": "a"},
            },
        },
    }


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('{')", "the plug-in's answer is not JSON"),
        ("print('[]')", "is not an ExecCredential"),
        (answering({"token": "t"}, V1BETA1), "has the apiVersion '.*v1beta1' instead of"),
        (answering(None), "has no status"),
        (answering({}), "has neither a token nor a client certificate"),
        (answering({"clientCertificateData": "c"}), "a client certificate or a key, but not both"),
        (answering({"token": "t", "expirationTimestamp": "soon"}), "which is not a time"),
        ("sys.exit('no\\n  luck')", r"process returned 1\. no luck; run the exec command"),
    ],
)
async def test_an_answer_of_no_use_is_one_clear_line(program: Any, code: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        await ask(program(code))
    assert str(caught.value).startswith("config: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        ("x", "exec of the user is not a mapping"),
        ({"command": "x"}, "missing key 'apiVersion'"),
        ({"apiVersion": V1}, "missing key 'command'"),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "x"}, "is not known"),
        ({"apiVersion": V1, "command": "x", "args": "y"}, "args is not a list"),
        ({"apiVersion": V1, "command": "x", "env": [1]}, "env is not a list of name and value"),
        ({"apiVersion": V1, "command": "x", "interactiveMode": "y"}, "use one of Never"),
        ({"apiVersion": V1, "command": "x", "interactiveMode": "Always"}, "not a terminal"),
        (
            {"apiVersion": V1, "command": "/no/such", "installHint": "Get\nit."},
            "/no/such cannot be run .No such file or directory.; Get it.",
        ),
    ],
)
async def test_a_plugin_that_cannot_be_asked_is_refused(
    plugin: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(ConfigError, match=said):
            await ask_plugin(plugin, {}, "config")


async def test_a_plugin_that_does_not_answer_is_ended(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubeconfig, "EXEC_TIMEOUT", 1.0)
    pid = tmp_path / "pid"
    with pytest.raises(ConfigError, match="did not answer within 1 s"):
        await ask(program(f"open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"))
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


async def test_a_plugin_is_ended_with_its_caller(program: Any, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    asking = asyncio.create_task(ask(program(code)))
    while not (pid.exists() and pid.read_text()):
        await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
