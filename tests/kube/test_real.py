"""The contract of the Kubernetes port against the API server that TOPOLOG_TEST_KUBECONFIG names; nothing without it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from shared.kube.client import KubeClient
from tests.kube.world import World

KUBECONFIG = os.environ.get("TOPOLOG_TEST_KUBECONFIG", "")

if KUBECONFIG:
    from tests.kube.contract import *  # noqa: F403 - the contract


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = await World(KubeClient(KUBECONFIG)).open()
    yield made
    await made.close()
