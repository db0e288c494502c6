"""The contract of the Kubernetes port against the API server that TOPOLOG_TEST_KUBECONFIG names;
nothing without it.

What a bare API server lacks is brought along: the definition of NodeResourceTopology for as long as
the tests run, if it is not installed, and the namespace's service account, which a controller
manager would make. Namespaces end by a controller manager: without one they stay behind, empty, and
the end of the run names them.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from shared.kube.client import KubeClient
from shared.kube.initial_events import PARAMS
from shared.kube.port import Answer
from tests.kube.world import World

KUBECONFIG = os.environ.get("TOPOLOG_TEST_KUBECONFIG", "")
_DEFINITION = (
    Path(__file__).resolve().parents[2] / "k8s" / "components" / "noderesourcetopology" / "crd.yaml"
)
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PATIENCE_S = 30.0

if KUBECONFIG:
    from tests.kube.contract import *  # noqa: F403 - the contract


async def _define() -> str:
    """Install the definition if it is missing, and return its path, or nothing if it existed."""
    world = World(KubeClient(KUBECONFIG))
    body = yaml.safe_load(_DEFINITION.read_text())
    path = f"{_DEFINITIONS}/{body['metadata']['name']}"
    answer = await world.ask("POST", _DEFINITIONS, body)
    assert answer.ok or answer.status == 409, (
        f"the definition {_DEFINITION} is not there and cannot be installed: {answer}"
    )
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            if _established(await world.ask("GET", path)):
                break
            await asyncio.sleep(0.1)
    await world.kube.close()
    return path if answer.ok else ""


def _established(answer: Answer) -> bool:
    conditions = answer.body.get("status", {}).get("conditions") or ()  # null at first
    return any(
        condition["type"] == "Established" and condition["status"] == "True"
        for condition in conditions
    )


async def _remove(path: str) -> None:
    world = World(KubeClient(KUBECONFIG))
    await world.ask("DELETE", path)
    await world.kube.close()


async def _left_behind(namespaces: list[str]) -> list[str]:
    """Return the namespaces that still exist some time after their deletion."""
    world = World(KubeClient(KUBECONFIG))
    deadline = asyncio.get_running_loop().time() + _PATIENCE_S
    while namespaces and asyncio.get_running_loop().time() < deadline:
        answers = [await world.ask("GET", f"/api/v1/namespaces/{name}") for name in namespaces]
        namespaces = [
            name for name, answer in zip(namespaces, answers, strict=True) if answer.status != 404
        ]
        await asyncio.sleep(0.5)
    await world.kube.close()
    return namespaces


async def _streams(world: World) -> bool:
    """Return whether the server sends lists as watches: not before 1.32, nor with an etcd without
    progress notifications."""
    asked = "&".join(f"{name}={value}" for name, value in PARAMS.items())
    answer = await world.ask("GET", f"/api/v1/namespaces?{asked}&timeoutSeconds=1")
    return answer.ok and answer.body.get("type") != "ERROR"


@pytest.fixture(scope="session")
def used() -> Iterator[list[str]]:
    """The namespaces that tests made; before them what the server lacks is installed, after them it
    is as it was.
    """
    path = asyncio.run(_define())
    namespaces: list[str] = []
    yield namespaces
    if path:
        asyncio.run(_remove(path))
    remaining = asyncio.run(_left_behind(namespaces))
    if remaining:
        warnings.warn(
            (
                "no controller manager ends namespaces there; these stay behind: "
                f"{' '.join(remaining)}"
            ),
            stacklevel=1,
        )


@pytest.fixture
async def world(used: list[str]) -> AsyncIterator[World]:
    made = await World(KubeClient(KUBECONFIG)).open()
    used.append(made.namespace)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    answer = await made.ask("POST", made.path("serviceaccounts"), account)
    assert answer.ok or answer.status == 409, answer
    made.streams = await _streams(made)
    yield made
    await made.close()
