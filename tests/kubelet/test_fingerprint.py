"""The pod fingerprint equals the published ones, and both membership rules select the right
pods.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.pod import Container, ContainerKind, Pod, Qos
from shared.domain.report import Placement, ZonedAmount
from shared.kubelet.fingerprint import EXCLUSIVE, check, fingerprint
from tests.fixtures.fingerprint_members import members, placements_are_exclusive, spec_is_exclusive

FIVE = [("ns1", "n1"), ("ns1", "n2"), ("ns2", "n1"), ("ns3", "n1"), ("ns3", "n2")]


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([], "pfp0v001ef46db3751d8e999"),
        (FIVE, "pfp0v001b92008c14168b3a6"),
        ([("default", "test-pod-0")], "pfp0v001fe53c4dbd2c5f4a0"),
        ([("namespace1", "pod1")], "pfp0v0019e0420efb37746c6"),
        ([("namespace1", "pod1"), ("namespace1", "pod2")], "pfp0v00155824ae3458223cd"),
        ([("numaresources", "numaresourcesoperator-worker-6wbjn")], "pfp0v001e515c294344ca79c"),
        ([("ns1", "n1")], "pfp0v001bb89419dce9a8948"),
        ([("ns1", "n1"), ("ns1", "n1")], "pfp0v0013cd40ca2be1d428c"),
        ([("ns-1", "pod-1"), ("ns-2", "pod-2"), ("ns-2", "pod-3")], "pfp0v0013b68d754c0817837"),
    ],
)
def test_published_fingerprints(pods: list[tuple[str, str]], expected: str) -> None:
    assert fingerprint(pods) == expected


pairs = st.lists(st.tuples(st.text(max_size=6), st.text(max_size=6)), max_size=12)


@given(pairs, st.randoms())
def test_order_does_not_matter_but_every_name_does(
    pods: list[tuple[str, str]], random: object
) -> None:
    shuffled = sorted(pods, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert fingerprint(shuffled) == fingerprint(pods)
    assert fingerprint([*pods, ("one", "more")]) != fingerprint(pods)


@pytest.mark.parametrize(
    ("expected", "verdict"),
    [
        ("pfp0v001b92008c14168b3a6", "match"),
        ("pfp0v001b92008c14168b3a7", "mismatch"),
        ("pfp0v000b92008c14168b3a6", "incompatible-version"),
        ("wrngv001b92008c14168b3a6", "malformed"),
        ("pfp0vX", "malformed"),
        ("", "malformed"),
    ],
)
def test_verdicts_of_a_check(expected: str, verdict: str) -> None:
    assert check(expected, fingerprint(FIVE)) == verdict


def _pod(qos: Qos, kind: ContainerKind = "app", **requests: int) -> Pod:
    asked = {name.replace("__", "/"): amount for name, amount in requests.items()}
    return Pod(uid="u", namespace="n", name="p", qos=qos, containers=(Container("c", kind, asked),))


@pytest.mark.parametrize(
    ("pod", "exclusive"),
    [
        (_pod("Guaranteed", cpu=2000), True),
        (_pod("Guaranteed", cpu=1500), False),
        (_pod("Guaranteed", cpu=1500, memory=1), True),
        (_pod("Guaranteed", cpu=0), False),
        (_pod("Burstable", cpu=2000, memory=1), False),
        (_pod("BestEffort", vendor__gpu=1), True),
        (_pod("BestEffort", vendor__gpu=0), False),
        (_pod("BestEffort", other__gpu=1), False),
        (_pod("Guaranteed", "init", cpu=2000), False),
        (_pod("Guaranteed", "sidecar", cpu=2000), True),
    ],
)
def test_what_a_spec_asks_for_exclusively(pod: Pod, exclusive: bool) -> None:
    assert spec_is_exclusive(pod, {"cpu", "memory", "vendor/gpu"}) is exclusive
    assert members([pod], EXCLUSIVE, {"vendor/gpu"}) == ([("n", "p")] if exclusive else [])
    assert members([pod], "all", ()) == [("n", "p")]


def test_upstream_counts_a_request_of_zero_devices() -> None:
    assert spec_is_exclusive(_pod("BestEffort", vendor__gpu=0), {"vendor/gpu"}, count_zero=True)


@pytest.mark.parametrize(
    ("held", "is_exclusive"),
    [
        ((), False),
        ((ZonedAmount("cpu", (0,), 2000),), True),
        ((ZonedAmount("memory", (), 4096),), False),
        ((ZonedAmount("vendor/gpu", (), 1),), False),
        ((ZonedAmount("vendor/gpu", (), 1), ZonedAmount("memory", (0, 1), 4096)), True),
    ],
)
def test_what_allocations_show_as_exclusive(
    held: tuple[ZonedAmount, ...], is_exclusive: bool
) -> None:
    assert placements_are_exclusive([Placement("n", "p", "c", held)]) is is_exclusive
