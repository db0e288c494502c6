"""Whatever is admitted, ended and restarted: books balance, sets are disjoint, and an empty machine
is empty again.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.pod import Container, ContainerKind, Pod
from shared.kubelet.admission import Restart, admit, drop_stale, remove, restart, start_containers
from shared.kubelet.machine import KubeletState
from tests.fixtures.examples import examples
from tests.kubelet.machines import GPU, container, guaranteed, kubelet

KIND_NAMES: tuple[ContainerKind, ...] = ("app", "app", "init", "sidecar")
KINDS = st.sampled_from(KIND_NAMES)
POLICIES = st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"])
OPTIONS = st.sampled_from(
    [
        {},
        {"full-pcpus-only": "true"},
        {"distribute-cpus-across-numa": "true"},
        {"prefer-align-cpus-by-uncorecache": "true"},
    ]
)


@st.composite
def pods(draw: st.DrawFn, uid: str) -> Pod:
    listed: list[Container] = []
    for index in range(draw(st.integers(1, 3))):
        kind = draw(KINDS)
        listed.append(
            container(
                f"{kind}{index}",
                draw(st.integers(0, 6)),
                draw(st.integers(0, 40)),
                draw(st.integers(0, 2)),
                kind,
            )
        )
    return guaranteed(uid, *sorted(listed, key=lambda each: each.kind == "app"))


@st.composite
def machines(draw: st.DrawFn) -> KubeletState:
    zones = draw(st.sampled_from([1, 2, 4]))
    gpus = {
        f"g{index}": draw(st.sampled_from([None, 1, 1 << zones - 1, (1 << zones) - 1]))
        for index in range(3)
    }
    scope = draw(st.sampled_from(["container", "pod"]))
    return kubelet(zones, draw(POLICIES), scope, gpus=gpus, cpu_options=draw(OPTIONS))


@settings(max_examples=examples(120), deadline=None)
@given(state=machines(), data=st.data())
def test_books_balance_through_any_history(state: KubeletState, data: st.DataObject) -> None:
    empty = state
    for index in range(data.draw(st.integers(1, 8))):
        action = data.draw(
            st.sampled_from(["admit", "admit", "admit", "start", "remove", "restart"])
        )
        uids = sorted(state.pods)
        if action == "admit" or not uids:
            state = admit(state, data.draw(pods(f"pod-{index}"))).state
        elif action == "start":
            state = start_containers(state, state.pods[uids[0]].pod)
        elif action == "remove":
            state = remove(state, data.draw(st.sampled_from(uids)))
        else:
            again = restart(state)
            assert isinstance(again, Restart)
            state = again.state
        check_books(drop_stale(state))
    for uid in sorted(state.pods):
        state = remove(state, uid)
    drained = drop_stale(state)
    assert (drained.cpu.shared, drained.cpu.entries) == (empty.cpu.shared, {})
    assert (drained.memory.nodes, drained.memory.entries) == (empty.memory.nodes, {})
    assert (drained.devices.held, drained.devices.in_use) == ({}, {})


def check_books(state: KubeletState) -> None:
    _check_cpus(state)
    for node in state.memory.nodes.values():
        for table in node.tables.values():
            assert table.free + table.reserved == table.allocatable
            assert min(table.free, table.reserved) >= 0
    _check_devices(state)
    active = state.pods.keys()
    assert {*state.cpu.entries, *state.memory.entries, *state.devices.held} <= active


def _check_cpus(state: KubeletState) -> None:
    """The pool and the pods' sets partition the machine; sets overlap inside one pod only."""
    seen = state.cpu.shared
    for containers in state.cpu.entries.values():
        union = 0
        for cpus in containers.values():
            union |= cpus
        assert not union & seen
        seen |= union
    assert seen == state.kubelet.cpu.topology.every
    assert not state.kubelet.cpu.reserved & ~state.cpu.shared


def _check_devices(state: KubeletState) -> None:
    owners: dict[str, str] = {}
    for uid, containers in state.devices.held.items():
        for holding in containers.values():
            for device in holding.get(GPU, frozenset()):
                assert owners.setdefault(device, uid) == uid


@settings(max_examples=examples(60), deadline=None)
@given(state=machines(), data=st.data())
def test_admitted_containers_hold_exactly_what_they_asked_for(
    state: KubeletState, data: st.DataObject
) -> None:
    pod = data.draw(pods("only"))
    verdict = admit(state, pod)
    for asked, got in zip(pod.containers, verdict.containers, strict=False):
        assert got.cpus.bit_count() == asked.requests.get("cpu", 0) // 1000
        assert len(got.devices.get(GPU, ())) == asked.limits.get(GPU, 0)
        if asked.kind != "init":
            assert sum(block.size for block in got.memory) == asked.requests.get("memory", 0)
    if verdict.admitted and state.kubelet.config.topology_policy == "single-numa-node":
        assert all(
            got.hint.mask is None or got.hint.mask.bit_count() == 1 for got in verdict.containers
        )
