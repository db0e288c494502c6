"""Seeds that once found a bug, or that reach a rare branch, run again. Together they reach every
rare branch.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.simulation.profile import DRAWN, Fixed
from tests.simulation.runner import STEPS, kept_seeds, run_seed

RARE = {
    "Conflict binder": "an intent or outcome that met a newer version of its pod",
    "Conflict scheduler": "two schedulers on one node or pod",
    "Conflict topology-store": "two replicas on one node's reports",
    "Duplicate binder": "an outcome sent again after its answer was lost",
    "Duplicate observer": "an event about the cluster that was appended already",
    "Duplicate scheduler": "a reservation sent again, or made by another first",
    "Duplicate topology-store": "a report that came twice at once",
    "fenced binder": "a paused leader that wrote after another took over",
    "fenced observer": "the same for the observer",
    "BindUncertain": "a binding whose answer was lost",
    "found bound": "a binding that took effect although its answer was lost",
    "late binding": "a binding that takes effect after it was given up",
    "bind refused gone": "a pod deleted before its binding",
    "bind refused other_uid": "a pod created again under its name before the binding",
    "bind refused other_node": "a pod that another writer bound",
    "alias": "a pod charged where another uid of its name was",
    "several zones charged": "a charge wider than one zone",
    "widened": "a charge that another pod's end widened",
    "reconciled fingerprint": "a comparison without placements that confirmed a pod",
    "reconciled proof": "a comparison in which every pod was confirmed",
    "reconciled empty": "a comparison of a node without pods",
    "delete missed": "a DELETE that no observer saw",
    "ended absent_from_list": "the list that showed the end of such a pod",
    "did go unseen": "a pod that ended between a doubted list and the next",
    "ended rejected": "a rejection by a kubelet",
    "NodeEnded": "a node that was deleted",
    "ReservationWithdrawn": "a reservation withdrawn because its node was deleted",
    "NodeReportExpired": "a node that became silent",
    "NodeReportRefused": "a report of an earlier boot",
    "log set back": "a lagging copy of the database that was promoted",
    "log restored": "a backup, and a timeline begun on it",
    "did clock jump": "the calendar of the services was set",
    "did log clock jump": "the clock of the database was set",
    "did lose state": "a kubelet that started without its checkpoints",
    "did vanish": "a device plugin that lost all devices",
    "did heal": "a device plugin whose devices returned",
    "did list cut": "a list that broke off",
    "empty list": "a list that was empty although objects exist",
    "a scan in parts": "a report whose parts were read at different times",
    "several schedulers": "pods divided among schedulers",
    "PodNominated": "a pod for which pods of lower priority are to be evicted",
    "PodEvicted": "such a victim was evicted",
    "hugepages": "machines with hugepages",
    "more than three zones": "machines with more than three zones",
    "charged zones compared with the truth": "an unconfirmed pod that a kubelet admitted",
    "proven zones compared with the truth": "a confirmed pod that a kubelet admitted",
    "short list": "a list that was cut short unnoticed",
    "reset head_behind": "a reader that is ahead of a restored log, and begins a timeline",
    "untold until a list beside the watch": "a list that lacked a pod without a watch event",
    "NominationObserved": "a claim for a nominated pod of another scheduler",
    "refused after foreign bind": "a rejection because of a foreign pod",
    "refused after pod ended": "a rejection after another pod's end",
}

# Seeds that broke something under options of `python -m tests.simulation`.
WITH_OPTIONS = {
    95240: (
        Fixed(policy="best-effort"),
        "a list lacked a pod, and no watch event came later (L2)",
    ),
    795673820: (
        Fixed(policy="restricted", often=("crash", "takeover")),
        (
            "an own reservation came back as a charge, by which other unhealthy devices "
            "counted as held (S13)"
        ),
    ),
    795684741: (
        Fixed(often=("set back",)),
        (
            "a log was set back unnoticed: nothing is decided before a reader that was ahead of "
            "it has had the cluster listed (S4)"
        ),
    ),
    795671755: (
        Fixed(policy="restricted"),
        "two schedulers hold one epoch, because the log was set back (S12)",
    ),
}


@cache
def marks(seed: int) -> frozenset[str]:
    fixed, _ = WITH_OPTIONS.get(seed, (DRAWN, ""))
    return frozenset(run_seed(seed, STEPS, fixed).marks)


def kept() -> dict[int, str]:
    return kept_seeds() | {seed: why for seed, (_, why) in WITH_OPTIONS.items()}


@pytest.mark.parametrize(("seed", "why"), sorted(kept().items()))
def test_kept_seed_holds_every_invariant(seed: int, why: str) -> None:
    assert why
    marks(seed)


def test_kept_seeds_reach_every_rare_branch() -> None:
    reached: set[str] = set()
    for seed in sorted(kept()):
        reached |= marks(seed)
    assert sorted(set(RARE) - reached) == []
