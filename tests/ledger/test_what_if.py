"""`what_if` equals the fold of the same starts and ends, and does not change the ledger."""

from __future__ import annotations

import random

import msgspec
import pytest

from shared.domain.pod import Pod
from shared.events import streams
from shared.events.scheduling_events import NodeClaimed, NominationWithdrawn, PodNominated
from shared.ledger.alike import kind_of
from shared.ledger.kubelet_states import KubeletStates, TooManyStates, kubelet_states
from shared.ledger.state import LedgerNode
from shared.ledger.what_if import newcomer, what_if
from tests.ledger.given import History, container, held, pod, zone

POLICIES = ("single-numa-node", "restricted", "best-effort", "none")
CPUS = 6


def scene(seed: int, policy: str) -> tuple[History, list[Pod], random.Random]:
    """Return a node of two zones with confirmed and pending pods, and in some scenes an ended pod
    or a nominee's claim.
    """
    chance, history = random.Random(f"{policy} {seed}"), History()
    history.node()
    placed = [
        (pod(f"p{number}", container("c", chance.randint(1, 2))), chance.randint(0, 1))
        for number in range(chance.randint(0, 3))
    ]
    for made, _ in placed:
        history.seen(made, "n1", phase="Running")
    used = [
        sum(made.containers[0].requests["cpu"] // 1000 for made, where in placed if where == number)
        for number in (0, 1)
    ]
    shown = [
        held(made.name, where, made.containers[0].requests["cpu"] // 1000) for made, where in placed
    ]
    history.report(
        *(zone(number, CPUS, CPUS - used[number]) for number in (0, 1)),
        at=2,
        placements=tuple(shown),
        policy=policy,
    )
    pods = [made for made, _ in placed]
    if pods and chance.random() < 0.4:
        history.end(pods.pop(chance.randrange(len(pods))))
    for number in range(chance.randint(0, 2)):
        pods.append(pod(f"q{number}", container("c", chance.randint(1, 4))))
        history.reserve(pods[-1])
    if chance.random() < 0.4:
        claimant = pod("nominee", cpus=2)
        history.seen(claimant)
        history.tell(
            streams.pod(claimant.uid), PodNominated(claimant.uid, "n1", (), {0: {"cpu": 2000}})
        )
        history.tell(streams.node("n1"), NodeClaimed("n1", claimant.uid))
    return history, pods, chance


def told_of(node: LedgerNode) -> dict[str, object]:
    """Return what filter results depend on, without the times of events."""
    charges = {
        uid: (
            entry.demand,
            entry.possible,
            entry.confirmed,
            entry.zones,
            entry.confirmed_zones,
            entry.alias,
        )
        for uid, entry in node.charges.items()
    }
    ended = {key: entry.complete for key, entry in node.ended.items()}
    requested = {name: amount for name, amount in node.requested.items() if amount}
    bounds = {
        "free_min": node.free_min,
        "free_max": node.free_max,
        "claims": node.claims,
        "name_counts": node.name_counts,
    }
    return {**bounds, "requested": requested, "charges": charges, "ended": ended}


@pytest.mark.parametrize("policy", POLICIES)
def test_what_would_be_is_what_the_fold_makes_of_it(policy: str) -> None:
    changed = 0
    for seed in range(150):
        history, pods, chance = scene(seed, policy)
        node, ledger = history.n1, history.ledger
        names = ["new", "newer", *(entry.partition("/")[2] for entry in node.ended)]
        coming = [
            pod(name, container("c", chance.randint(1, 5)), uid=f"uid-again-{name}")
            for name in names[: chance.randint(0, 3)]
        ]
        gone = [entry for entry in pods if chance.random() < 0.5]
        claimant = "uid-nominee" if node.claims and chance.random() < 0.5 else ""
        earlier = msgspec.msgpack.encode(ledger)
        own_claim = [newcomer(entry, kind_of(entry), node.basis, node.free_max) for entry in coming]
        computed = what_if(node, [entry.uid for entry in gone], ledger.pods, claimant, own_claim)
        assert msgspec.msgpack.encode(ledger) == earlier
        for entry in coming:
            history.reserve(entry)
        for entry in gone:
            history.end(entry)
        if claimant:
            history.tell(streams.pod(claimant), NominationWithdrawn(claimant, "n1", "enough"))
        assert told_of(computed) == told_of(history.n1), seed
        changed += bool(coming) and bool(gone)
    assert changed > 30


def test_a_newcomer_is_charged_where_a_trusted_prediction_has_it() -> None:
    history = History()
    history.node()
    history.report(zone(0, CPUS), zone(1, CPUS))
    made, node = pod("p", cpus=2), history.n1
    anywhere, trusted = (
        newcomer(made, kind_of(made), node.basis, node.free_max, where)
        for where in ({}, {"c": (1,)})
    )
    assert (set(anywhere.charge.zones), set(trusted.charge.zones)) == ({0, 1}, {1})
    assert what_if(node, (), {}, "", [trusted]).free_min == {
        0: node.free_min[0],
        1: {**node.free_min[1], "cpu": (CPUS - 2) * 1000},
    }


def test_of_a_node_without_a_report_nothing_is_charged_in_zones() -> None:
    pod_spec = pod("p", cpus=2)
    charge, request = newcomer(pod_spec, kind_of(pod_spec), None, {})
    assert (charge.zones, charge.demand, request) == ({}, (), {"cpu": 2000})


def test_a_newcomer_may_come_before_an_end_that_is_only_supposed() -> None:
    """After an end of the log it comes for certain, although no report ever listed that pod."""
    history = History()
    history.node()
    history.report(zone(0, CPUS), zone(1, CPUS))
    history.reserve(made := pod("ends", cpus=2))
    node, coming = history.n1, pod("comes", cpus=2)
    new = newcomer(coming, kind_of(coming), node.basis, node.free_max)
    supposed = what_if(node, [made.uid], history.ledger.pods, "", [new])
    history.end(made)
    ended = what_if(history.n1, (), {}, "", [new])
    for changed, type_of_answer in ((supposed, TooManyStates), (ended, KubeletStates)):
        changed.ended["ns/ends"].lives = None  # as after a boot
        assert changed.report is not None
        policy, scope = changed.report.policy, changed.report.scope
        charges = changed.charges.values()
        states = kubelet_states(changed, changed.report, charges, {}, policy, scope, False)
        assert isinstance(states, type_of_answer)
