"""The podresources client against a real gRPC server on a unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.exporter import source_grpc
from services.exporter.answers import Allocatable, ListedContainer, ListedPod
from services.exporter.source_grpc import GrpcSource, SourceError
from services.exporter.unary import Connection
from tests.exporter.kubelets import Kubelet


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[Kubelet]:
    serving = await Kubelet(tmp_path / "k.sock").start()
    yield serving
    await serving.stop()


async def test_answers_come_sorted(kubelet: Kubelet) -> None:
    kubelet.pods = {"b": [6, 5], "a": []}
    source = GrpcSource(str(kubelet.socket))
    listed = (
        ListedPod("default", "a", (ListedContainer("c"),)),
        ListedPod("default", "b", (ListedContainer("c", (5, 6)),)),
    )
    assert await source.pods() == listed
    assert await source.allocatable() == Allocatable((1, 2, 3, 5, 6, 7))
    await source.close()


async def test_rate_limit_of_the_kubelet_is_waited_out(kubelet: Kubelet) -> None:
    kubelet.refusals = 2
    source = GrpcSource(str(kubelet.socket))
    assert await source.pods() == ()
    assert kubelet.calls == 3
    await source.close()


async def test_a_permanent_rate_limit_is_an_error_with_socket_and_call(
    kubelet: Kubelet,
) -> None:
    kubelet.refusals = 99
    source = GrpcSource(str(kubelet.socket))
    with pytest.raises(SourceError, match=r"List on .*k\.sock: RESOURCE_EXHAUSTED"):
        await source.pods()
    await source.close()


async def test_answer_above_the_cap_is_refused_without_another_try(kubelet: Kubelet) -> None:
    kubelet.padding = 17 * 1024 * 1024
    source = GrpcSource(str(kubelet.socket))
    with pytest.raises(SourceError, match="RESOURCE_EXHAUSTED"):
        await source.pods()
    assert kubelet.calls == 1
    await source.close()


async def test_kubelet_that_hangs_ends_by_the_deadline(kubelet: Kubelet) -> None:
    kubelet.hang = True
    source = GrpcSource(str(kubelet.socket), deadline_s=0.2)
    with pytest.raises(SourceError, match="DEADLINE_EXCEEDED"):
        await source.pods()
    await source.close()


async def test_missing_socket_is_named_with_a_remedy(tmp_path: Path) -> None:
    source = GrpcSource(str(tmp_path / "none.sock"))
    with pytest.raises(SourceError, match=r"none\.sock: UNAVAILABLE.*check that a kubelet listens"):
        await source.pods()
    await source.close()


async def test_socket_replaced_by_a_restarting_kubelet_is_found_again(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    source = GrpcSource(str(kubelet.socket))
    await source.pods()
    await kubelet.stop()
    with pytest.raises(SourceError):
        await source.pods()
    again = await Kubelet(kubelet.socket).start()
    async with asyncio.timeout(60):
        while not again.calls:
            with contextlib.suppress(SourceError):
                await source.pods()
            await asyncio.sleep(0.02)
    await source.close()
    await again.stop()


async def test_a_list_after_a_restart_in_the_middle_of_a_scan_goes_over_a_new_connection(
    kubelet: Kubelet,
) -> None:
    source = GrpcSource(str(kubelet.socket))
    await source.allocatable()
    await kubelet.stop()
    again = await Kubelet(kubelet.socket).start()
    again.pods = {"a": [1]}
    try:
        assert [pod.name for pod in await source.pods()] == ["a"]
    finally:
        await again.stop()


async def test_calls_share_a_connection_until_it_has_borne_enough_of_them(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[Connection]()

    def counted(socket: str) -> Connection:
        made.append(Connection(socket))
        return made[-1]

    monkeypatch.setattr(source_grpc, "Connection", counted)
    source = GrpcSource(str(kubelet.socket))
    for _ in range(source_grpc.KEPT_CALLS):
        await source.allocatable()
        await source.pods()
    assert len(made) == 2
    await source.close()


async def test_a_replaced_socket_is_used_although_the_old_kubelet_answers(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    source = GrpcSource(str(kubelet.socket))
    await source.pods()
    second = await Kubelet(tmp_path / "other.sock").start()
    second.pods = {"a": [1]}
    second.socket.rename(kubelet.socket)
    try:
        assert [pod.name for pod in await source.pods()] == ["a"]
    finally:
        await source.close()
        await second.stop()


@pytest.mark.parametrize("refusals", [2, 99])
async def test_a_call_that_failed_leaves_no_connection(kubelet: Kubelet, refusals: int) -> None:
    source = GrpcSource(str(kubelet.socket))
    await source.pods()
    earlier = len(os.listdir("/proc/self/fd"))
    kubelet.refusals = refusals
    for _ in range(3):
        with contextlib.suppress(SourceError):
            await source.pods()
    await asyncio.sleep(0.1)
    assert len(os.listdir("/proc/self/fd")) <= earlier
    await source.close()
