"""Credentials against a server that looks at them: token files that change, plugins of both
versions, and all that goes wrong.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import yaml

from shared.kube.client import KubeClient
from shared.kube.port import Answer, KubeUnavailableError, Lost
from tests.kube.test_transport import OK, Server

REFUSED = (
    b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
)


class Guard(Server):
    """A server that answers 401 to every token except `good`."""

    good = "first"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                self.requests.append(request := await self._request(reader))
                writer.write(
                    OK if f"bearer {self.good}\r\n".encode() in request.lower() else REFUSED
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@pytest.fixture
async def guard() -> AsyncIterator[Guard]:
    made = Guard()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield made
    listening.close()


def kubeconfig(folder: Path, server: str, user: Mapping[str, object]) -> str:
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "it",
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                "clusters": [{"name": "it", "cluster": {"server": server}}],
                "users": [{"name": "it", "user": user}],
            }
        )
    )
    return str(path)


def plugin(
    folder: Path, version: str = "v1", body: str = "", says: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Return a kubeconfig user whose plugin is a script in the same folder, which counts
    its runs.
    """
    group = f"client.authentication.k8s.io/{version}"
    said = {
        "apiVersion": group,
        "kind": "ExecCredential",
        "status": {"token": "first"},
        **(says or {}),
    }
    (folder / "said.json").write_text(json.dumps(said))
    script = folder / "plugin.sh"
    note_run = f'echo "$KUBERNETES_EXEC_INFO" >> "{folder}/runs"\n'
    script.write_text("#!/bin/sh\n" + note_run + (body or f'cat "{folder}/said.json"') + "\n")
    script.chmod(0o755)
    return {"exec": {"apiVersion": group, "command": "./plugin.sh", "interactiveMode": "Never"}}


async def ask(kube: KubeClient) -> Answer | Lost:
    return await kube.get_pod("ns", "p")


async def asked(path: str) -> Answer | Lost:
    kube = KubeClient(path)
    try:
        return await ask(kube)
    finally:
        await kube.close()


def lost(answer: Answer | Lost) -> str:
    assert isinstance(answer, Lost), answer
    return answer.message


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_plugin_is_asked_in_its_version_and_once_for_many_calls(
    tmp_path: Path, guard: Guard, version: str
) -> None:
    kube = KubeClient(kubeconfig(tmp_path, guard.url, plugin(tmp_path, version)))
    answers = await asyncio.gather(*(ask(kube) for _ in range(5)))
    await kube.close()
    assert [answer.status for answer in answers if isinstance(answer, Answer)] == [200] * 5
    (run,) = (tmp_path / "runs").read_text().splitlines()
    assert json.loads(run)["apiVersion"] == f"client.authentication.k8s.io/{version}"


async def test_a_plugin_gets_the_environment_without_topologs_settings(
    tmp_path: Path, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPOLOG_DATABASE_URL", "postgresql://u:s3cret@h/x")
    monkeypatch.setenv("CLOUD_PROFILE", "mine")
    await asked(
        kubeconfig(
            tmp_path,
            guard.url,
            plugin(tmp_path, body=f'env > "{tmp_path}/env"; cat "{tmp_path}/said.json"'),
        )
    )
    environment = (tmp_path / "env").read_text()
    assert "CLOUD_PROFILE=mine" in environment
    assert "s3cret" not in environment


async def test_a_plugin_is_run_again_when_its_token_is_refused(
    tmp_path: Path, guard: Guard
) -> None:
    kube = KubeClient(kubeconfig(tmp_path, guard.url, plugin(tmp_path)))
    assert isinstance(await ask(kube), Answer)
    guard.good = "second"
    plugin(tmp_path, says={"status": {"token": "second"}})
    answer = await ask(kube)
    await kube.close()
    assert isinstance(answer, Answer)
    assert answer.status == 200
    assert len((tmp_path / "runs").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("version", "body", "named"),
    [
        ("v1", "exit 3", "exit code 3"),
        ("v1", "echo nonsense", "printed no ExecCredential"),
        (
            "v1",
            'echo \'{"apiVersion":"client.authentication.k8s.io/v1","status":{}}\'',
            "neither token nor client certificate",
        ),
        ("v1alpha1", "", "client.authentication.k8s.io/v1 or"),
    ],
)
async def test_a_plugin_that_fails_is_a_lost_answer_and_a_failed_watch(
    tmp_path: Path, guard: Guard, version: str, body: str, named: str
) -> None:
    kube = KubeClient(kubeconfig(tmp_path, guard.url, plugin(tmp_path, version, body)))
    assert named in lost(await ask(kube))
    with pytest.raises(KubeUnavailableError, match="plugin"):
        async for _ in kube.watch("pods", "1"):
            pass
    await kube.close()


async def test_a_plugin_that_is_not_there_names_its_hint(tmp_path: Path, guard: Guard) -> None:
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "no-such-tool",
            "installHint": "install it",
        }
    }
    assert "install it" in lost(await asked(kubeconfig(tmp_path, guard.url, user)))


async def test_a_token_file_is_read_again_after_a_401(tmp_path: Path, guard: Guard) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    kube = KubeClient(kubeconfig(tmp_path, guard.url, {"tokenFile": str(token)}))
    assert isinstance(await ask(kube), Answer)
    guard.good = "second"
    token.write_text("second\n")
    answer = await ask(kube)
    assert isinstance(answer, Answer)
    assert answer.status == 200
    token.unlink()
    guard.good = "third"
    assert str(token) in lost(await ask(kube))
    token.write_text("third")
    answer = await ask(kube)
    assert isinstance(answer, Answer)
    assert answer.status == 200
    await kube.close()


async def test_no_error_contains_a_secret(tmp_path: Path, guard: Guard) -> None:
    guard.good = "another"
    says = {
        "status": {
            "token": "secret-token",
            "clientCertificateData": "no certificate",
            "clientKeyData": "secret-key",
        }
    }
    answer = await asked(kubeconfig(tmp_path, guard.url, plugin(tmp_path, says=says)))
    assert "secret" not in repr(answer)
