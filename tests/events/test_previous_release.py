"""The release before this one, by its own code, reads events that this one writes alike, or refuses
them by name.

A rolling update has both releases on one log, and a rollback has the older one alone. An event that
the older release cannot read is skipped, or quarantines its stream (`shared.events.quarantine`); it
must read no event as something else. `previous_release.zip` has its sources
(`scripts/previous_release.py`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import compress
from pathlib import Path
from typing import Any

import pytest

from shared.events.catalog import CATALOG, Event
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from tests.events.reading import read
from tests.events.samples import full, minimal
from tests.simulation.runner import run_seed

HERE = Path(__file__).parent
ARCHIVE = HERE / "previous_release.zip"
NEW = "of a constraint that the release before does not know: it decides as it always did"
# Why the previous release may ignore an event that it cannot read, by `Type.schema`. CHANGELOG
# names events that it must not miss.
UNREADABLE = {
    "VolumeObserved.1": NEW,
    "ClaimObserved.1": NEW,
    "NamespaceObserved.1": NEW,
    "NodeVolumesLimited.1": NEW,
    "NominationObserved.1": NEW,
    "DeviceClassObserved.1": (
        "of what others give: the release before refuses such pods by the "
        "extender, as it always did"
    ),
    "PodGroupObserved.1": (
        "of gangs, which the release before does not place: a pod of a gang that it reads in the "
        "log is placed by itself"
    ),
    "SurroundingEnded.1": NEW,
    "ClusterListed.1": (
        "of a rule that the release before does not have: after a restore it "
        "decides at once, as it always did"
    ),
    **dict.fromkeys(
        ("BookingMade.1", "BookingEnded.1"),
        "of room that the release before does not keep: it places pods as if there were none",
    ),
    "PodAllocationFound.1": "of zones that the release before does not choose",
    "NodeDevicesObserved.1": "of devices that the release before does not choose",
    "PodDevicesLost.1": "of devices that the release before does not choose",
    **dict.fromkeys(
        ("HoldBegun.1", "HoldEnded.1"),
        "of a kind of stream that the release before passes over: it holds no node",
    ),
    "GangRolledBack.1": "of evictions that the release before does not make",
}
# A history in which this release confirms a pod sooner: a checkpoint has the uid of a pod with
# the name of an ended one. The release before charges it in every zone where it could land until
# a listing distinguishes them.
PROVEN_SOONER = 20_026
# Simulated histories: a log set back, dirty nodes, uncertain bindings, nodes that come and go.
SEEDS = (52_035, PROVEN_SOONER, 20_010)


def before(lines: Iterable[str]) -> dict[str, Any]:
    """Return how the previous release folds these events."""
    ran = subprocess.run(
        [sys.executable, "-I", str(HERE / "reading.py"), str(ARCHIVE)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    problems: dict[str, Any] = json.loads(ran.stdout)
    return problems


def ours_of(lines: Iterable[str]) -> dict[str, Any]:
    """Return how this release folds these events, as JSON values."""
    problems: dict[str, Any] = json.loads(json.dumps(read(lines)))
    return problems


def line(envelope: Envelope) -> str:
    fields = {
        name: getattr(envelope, name) for name in envelope.__struct_fields__ if name != "chain"
    }
    return json.dumps({**fields, "payload": envelope.payload.decode()})


def alone(position: int, event: Event) -> str:
    entry = CATALOG[type_of(event)]
    return line(
        Envelope(
            position,
            f"s/{position}",
            1,
            type_of(event),
            entry.schema,
            encode(event),
            0,
            "r",
            0,
            f"c{position}",
        )
    )


def holds(ours: Any, theirs: Any) -> bool:
    """Return whether everything that the older release reads equals ours, which may have more."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return all(key in ours and holds(ours[key], value) for key, value in theirs.items())
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(holds, ours, theirs))
    return bool(ours == theirs)


def test_every_event_of_ours_reads_the_same_there_or_is_refused_by_name() -> None:
    events = [made(CATALOG[name].struct) for name in sorted(CATALOG) for made in (full, minimal)]
    lines = [alone(position, event) for position, event in enumerate(events, 1)]
    theirs, ours = before(lines), ours_of(lines)
    assert set(theirs["refused"]) == set(UNREADABLE), (
        "a fact that the release before cannot read needs its line in UNREADABLE"
    )
    assert all(
        "unknown type" in why or "schema is newer" in why for why in theirs["refused"].values()
    )
    for position, event in theirs["decoded"].items():
        assert holds(ours["decoded"][position], event), f"{event} reads otherwise there"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_of_ours_is_folded_to_the_same_charges_there(seed: int) -> None:
    history = run_seed(seed).log.read_now(0, 10_000)
    assert len(history) > 50
    lines = list(map(line, history))
    theirs, ours = before(lines), ours_of(lines)
    read_there = [f"{envelope.type}.{envelope.schema}" not in UNREADABLE for envelope in history]
    missed = {
        envelope.stream
        for envelope, is_read in zip(history, read_there, strict=True)
        if not is_read
    }
    assert set(theirs["aside"]) - missed == set(ours["aside"])
    assert any(charges for charges, _ in ours["promised"])
    namesakes, again = namesakes_of(lines), seen_again(lines)
    sooner = 0
    for theirs_charges, our_charges in zip(
        theirs["promised"], compress(ours["promised"], read_there), strict=True
    ):
        (charged_there, stages_there), (charged_here, stages_here) = theirs_charges, our_charges
        differ = {
            uid
            for uid in charged_there.keys() | charged_here.keys()
            if charged_there.get(uid) != charged_here.get(uid)
        }
        assert stages_there == stages_here
        assert all(
            uid in namesakes | again and narrower(charged_here[uid], charged_there[uid])
            for uid in differ
        ), differ
        sooner += len(differ & namesakes)
    assert bool(sooner) == (seed == PROVEN_SOONER)


def namesakes_of(lines: Iterable[str]) -> set[str]:
    """Return the pods that have the name of an earlier pod."""
    bearers = dict[tuple[str, str], str]()
    problems = set[str]()
    for row in map(json.loads, lines):
        pod = json.loads(row["payload"]).get("pod") if row["type"] == "PodObserved" else None
        if (
            pod is not None
            and bearers.setdefault((pod["namespace"], pod["name"]), pod["uid"]) != pod["uid"]
        ):
            problems.add(pod["uid"])
    return problems


def seen_again(lines: Iterable[str]) -> set[str]:
    """Pods that were seen again, for example with other labels or being deleted: the release before
    took their kubelet's listing for that of another pod from then on."""
    seen = Counter(
        json.loads(row["payload"])["pod"]["uid"]
        for row in map(json.loads, lines)
        if row["type"] == "PodObserved"
    )
    return {uid for uid, times in seen.items() if times > 1}


def narrower(our_charges: list[Any], theirs_charges: list[Any]) -> bool:
    """Return whether a charge is unconfirmed in the previous release and smaller here on the same
    node: in fewer zones, or with smaller amounts.
    """
    (node, _, zones), (node_there, proven_there, zones_there) = our_charges, theirs_charges
    within = all(
        amount <= zones_there[zone].get(name, 0)
        for zone, amounts in zones.items()
        for name, amount in amounts.items()
    )
    return bool(node == node_there and not proven_there and zones != zones_there and within)


def test_a_event_from_the_future_sets_one_stream_aside_there_and_leaves_the_rest() -> None:
    expected = alone(1, full(CATALOG["PodRunning"].struct))
    future = json.loads(expected) | {
        "position": 2,
        "stream": "s/2",
        "type": "PodDreamt",
        "payload": '{"type":"PodDreamt","uid":"u"}',
    }
    theirs = before([expected, json.dumps(future), alone(3, full(CATALOG["PodEnded"].struct))])
    assert set(theirs["aside"]) == {"s/2"}
    assert set(theirs["decoded"]) == {"1", "3"}
