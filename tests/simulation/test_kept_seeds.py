"""Seeds that once broke something, or that reach a rare branch, run again; together they reach
every branch that is rare.
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
    "Duplicate observer": "a fact about the cluster told again",
    "Duplicate scheduler": "a reservation sent again, or made by another first",
    "Duplicate topology-store": "a report that came twice at once",
    "fenced binder": "a paused leader that wrote after another took over",
    "fenced observer": "the same for the observer",
    "BindUncertain": "a binding whose answer was lost",
    "found bound": "a binding that had taken effect unheard",
    "late binding": "a binding that takes effect after it was given up",
    "bind refused gone": "a pod deleted before its binding",
    "bind refused other_uid": "a pod created again under its name before the binding",
    "bind refused other_node": "a pod that somebody else bound",
    "alias": "a pod charged where another uid of its name was",
    "several zones charged": "a charge wider than one zone",
    "widened": "a charge that another pod's end widened",
    "reconciled fingerprint": "a comparison without placements that settled something",
    "reconciled proof": "a comparison that found every pod proven",
    "reconciled empty": "a comparison of a node without pods",
    "delete missed": "a DELETE that no observer saw",
    "ended absent_from_list": "the list that made up for it",
    "did go unseen": "a pod that went between a list that was doubted and the next",
    "ended rejected": "a kubelet's refusal",
    "NodeEnded": "a node that went",
    "ReservationWithdrawn": "a reservation taken back because its node went",
    "NodeReportExpired": "a node that fell silent",
    "NodeReportRefused": "a report of an earlier boot",
    "log set back": "a lagging copy of the database that was promoted",
    "log restored": "a backup, and a timeline begun on it",
    "did clock jump": "the calendar of the services was set",
    "did log clock jump": "that of the database was set",
    "did lose state": "a kubelet that started without its checkpoints",
    "did vanish": "a plugin whose devices were all gone",
    "did heal": "and came back",
    "did list cut": "a list that broke off",
    "empty list": "a list that lied",
    "a scan in parts": "a report whose parts are of different moments",
    "several schedulers": "pods shared out",
    "PodNominated": "a pod for which others of a lower priority are to go",
    "PodEvicted": "and they went",
    "hugepages": "machines with hugepages",
    "more than three zones": "and such",
    "charged zones compared with the truth": "an unproven pod that a kubelet admitted",
    "proven zones compared with the truth": "a proven one",
    "short list": "a list that was cut short unnoticed",
    "reset head_behind": "a reader that had read more than the log has now, and begins a timeline",
    "untold until a list beside the watch": "one that kept back a pod that no watch told of",
    "NominationObserved": "room that is kept for a pod of another scheduler",
    "refused after foreign bind": "a refusal for a foreign pod",
    "refused after pod ended": "a refusal after a pod's end",
}

# Seeds that broke something under options of `python -m tests.simulation`.
WITH_OPTIONS = {
    95240: (
        Fixed(policy="best-effort"),
        "a list kept back a pod that no watch told of after it (L2)",
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
            "a log was set back without a word: nothing is decided before whoever had read "
            "more of it had the cluster listed (S4)"
        ),
    ),
    795671755: (
        Fixed(policy="restricted"),
        "two schedulers hold one epoch, as the log was set back: they are two (S12)",
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
