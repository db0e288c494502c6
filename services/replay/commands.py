"""What each replay verb computes, from an open log to plain values. Printing is the command line's matter."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

import msgspec

from services.replay import filters, reading, story
from services.replay.filters import Filter
from services.replay.verifying import Audit, Violation
from services.scheduler.scoring.node_label import strategy_for
from shared.domain.quantity import format_amount
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.events import cluster_facts as cluster
from shared.events import streams
from shared.events.catalog import Fact
from shared.events.codec import UndecodableFact, decode
from shared.events.envelope import Envelope
from shared.events.scheduling_facts import PodReserved
from shared.events.setting_aside import Aside
from shared.ledger.digest import digest
from shared.ledger.fold import GapError
from shared.ledger.state import Charge, Ledger, LedgerNode
from shared.ledger.view import clamped

FOLLOW_WAIT_S = 1.0
SUMMARY_LIMIT = 160


class Listing(msgspec.Struct, frozen=True):
    """What `replay log` was asked for."""

    wanted: Filter
    pod: str = ""
    after: int = 0
    limit: int = 1_000_000_000
    follow: bool = False


async def list_facts(log: EventLog, listing: Listing, show: Callable[[dict[str, Any]], None]) -> None:
    """Hand each accepted fact to `show`, oldest first; with `follow` go on for ever."""
    wanted = listing.wanted
    if listing.pod:
        wanted = msgspec.structs.replace(wanted, uids=frozenset(await uids_of(log, listing.pod)) or frozenset({listing.pod}))
    position, left = listing.after, listing.limit
    while left > 0:
        async for envelope in reading.envelopes(log, position):
            position = envelope.position
            if wanted.accepts(envelope):
                show(row(envelope))
                left -= 1
                if left == 0:
                    return
        if not listing.follow:
            return
        await log.wait(position, FOLLOW_WAIT_S)


def row(envelope: Envelope) -> dict[str, Any]:
    """One fact as a flat value; an undecodable one says so instead of hiding."""
    try:
        fact: Any = msgspec.to_builtins(decode(envelope))
        fact.pop("type", None)
        summary = msgspec.json.encode(fact).decode()
    except UndecodableFact as error:
        fact, summary = None, f"undecodable: {error}"
    return {
        "position": envelope.position,
        "time": filters.clock(envelope.time_us),
        "stream": envelope.stream,
        "version": envelope.version,
        "type": envelope.type,
        "role": envelope.role,
        "epoch": envelope.epoch,
        "commit_id": envelope.commit_id,
        "trace": envelope.trace,
        "summary": summary[:SUMMARY_LIMIT],
        "fact": fact,
    }


async def uids_of(log: EventLog, pod: str) -> list[str]:
    """Uids of the pods called `pod` (a uid, a name, or namespace/name), in order of appearance."""
    found: dict[str, None] = {}
    async for _, fact in reading.facts(log):
        if isinstance(fact, cluster.PodObserved) and pod in (fact.pod.uid, fact.pod.name, fact.pod.key):
            found[fact.pod.uid] = None
    return list(found)


async def stand_at(log: EventLog, moment: str, node: str) -> dict[str, Any]:
    """The ledger at a position or a time, as rows for each node."""
    head = await log.head()
    until = int(moment) if moment.isdigit() else await reading.position_at(log, filters.moment(moment))
    aside = Aside()
    ledger = await reading.ledger_at(log, min(until, head), aside=aside)
    if node and node not in ledger.nodes:
        raise filters.FilterError(f"--node {node!r}: no such node at position {ledger.position}")
    names = [node] if node else sorted(ledger.nodes)
    nodes = [_node_rows(ledger, ledger.nodes[name]) for name in names]
    return {
        "position": ledger.position,
        "head": head,
        "hash": digest(ledger),
        "pods": len(ledger.pods),
        "set_aside": list(aside.streams.values()),
        "nodes": nodes,
    }


def _node_rows(ledger: Ledger, node: LedgerNode) -> dict[str, Any]:
    report = node.report
    return {
        "node": node.name,
        "policy": report.policy if report else "",
        "scope": report.scope if report else "",
        "report_version": node.report_version,
        "dirty": node.dirty,
        "expired": node.expired,
        "locked": node.locked,
        "problems": [*_lockout(node), *_label_problems(node.observed)],
        "zones": _zone_rows(node),
        "charges": [_charge_row(ledger, charge) for charge in node.charges.values()],
    }


def _lockout(node: LedgerNode) -> list[str]:
    """Why nothing is believed of a silent node, and the way out."""
    return [f"locked out: {node.locked}; look at the machine, then: topolog node release {node.name}"] if node.locked else []


def _label_problems(observed: cluster.NodeObserved | None) -> list[str]:
    """What of the node's labels cannot be heeded."""
    problem = strategy_for(observed.labels).problem if observed is not None else ""
    return [problem] if problem else []


def _zone_rows(node: LedgerNode) -> list[list[str]]:
    if node.report is None:
        return []
    lower, upper = clamped(node.lower), clamped(node.upper)
    return [
        [
            str(zone.id),
            name,
            *(
                format_amount(name, amount)
                for amount in (held.allocatable, lower.get(zone.id, {}).get(name, 0), upper.get(zone.id, {}).get(name, 0))
            ),
        ]
        for zone in node.report.zones
        for name, held in sorted(zone.resources.items())
    ]


def _charge_row(ledger: Ledger, charge: Charge) -> list[str]:
    state = "proven" if charge.proven else ("needs no zone" if not charge.demand else "unproven")
    could = "; ".join(f"{name or 'pod'}: {','.join(map(str, zones))}" for name, zones in charge.possible.items())
    held = "; ".join(f"{zone}: {story.amounts_text(amounts)}" for zone, amounts in charge.held.items())
    return [charge.key, state, "" if charge.proven else could, held]


class Story(msgspec.Struct, frozen=True):
    """One pod's story. `set_aside` is what ends it before its time: a fact that cannot be read."""

    uid: str
    key: str
    lines: list[story.Line]
    set_aside: str = ""


async def explain(log: EventLog, pod: str) -> list[Story]:
    """The story of each pod of that name."""
    uids = await uids_of(log, pod)
    history: dict[str, list[tuple[Envelope, Fact]]] = {uid: [] for uid in uids}
    keys: dict[str, str] = {}
    unheeded: dict[str, list[str]] = {}
    notes: dict[int, str] = {}
    aside = Aside()
    async for envelope, fact in reading.facts(log, aside=aside):
        uid = fact.about.pod
        if isinstance(fact, cluster.NodeObserved):
            unheeded[fact.name] = _label_problems(fact)
        if isinstance(fact, PodReserved) and uid in history and unheeded.get(fact.node):
            notes[envelope.position] = "; ".join(unheeded[fact.node])
        if isinstance(fact, cluster.PodObserved):
            keys[uid] = fact.pod.key
        if uid in history:
            history[uid].append((envelope, fact))
    if not uids and streams.pod(pod) in aside.streams:
        return [Story(pod, pod, [], aside.streams[streams.pod(pod)])]
    return [
        Story(uid, keys.get(uid, uid), story.tell(history[uid], uid, keys, notes), aside.streams.get(streams.pod(uid), ""))
        for uid in uids
    ]


class LiveState(msgspec.Struct, frozen=True):
    """What a running service says of its fold (`GET /state`)."""

    projection: str
    position: int
    hash: str


class Verdict(msgspec.Struct):
    """What `verify` found."""

    positions: int
    streams: int
    hash: str
    facts_per_s: float
    violations: list[Violation]
    compared: list[LiveState] = []
    rejected: int = 0
    live_pods: int = 0

    @property
    def ok(self) -> bool:
        """True when nothing is broken."""
        return not self.violations

    def rows(self) -> list[list[str]]:
        """A row an invariant."""
        broken = {violation.invariant for violation in self.violations}
        names = {
            "S1": "positions 1..n without a hole",
            "S2": "versions 1..m on every stream",
            "S3": "no append from an older epoch",
            "S5": "every pod bound at most once",
            "S6": f"equal positions, equal state ({len(self.compared)} live state(s) compared)",
            "S7": "every effect has an earlier intent",
            "S9": f"no pods, no charges ({self.live_pods} live pod(s))",
            "facts": "every fact can be read and folded",
            "history": "every row is what was appended, by the hash chain",
            "ledger": "bounds equal those computed anew",
        }
        return [[f"{key} {text}", "BROKEN" if key in broken else "holds"] for key, text in names.items()]


async def verify(log: EventLog, state_urls: list[str]) -> Verdict:
    """Fold everything from zero and check; live services' hashes are compared at their own positions."""
    live = [state for url in state_urls if (state := _fetch_state(url)) is not None]
    wanted = {state.position: state for state in live if state.projection == "ledger"}
    audit, begun, hashes = Audit(), time.monotonic(), {}
    end = max([await log.head(), *wanted])
    audit.aside.skipped = await skips(log)
    try:
        async for envelope in reading.envelopes(log, 0, end):
            audit.see(envelope)
            if envelope.position in wanted:
                hashes[envelope.position] = digest(audit.ledger)
    except GapError as error:
        audit.violations.append(Violation("S1", audit.ledger.position + 1, f"{error}; what follows was not checked"))
    for position, state in wanted.items():
        folded = hashes.get(position, "")
        if folded != state.hash:
            audit.violations.append(Violation("S6", position, f"live hash {state.hash}, folded from zero {folded}"))
    violations = audit.finish()
    rate = audit.ledger.position / max(time.monotonic() - begun, 1e-9)
    return Verdict(
        positions=audit.ledger.position,
        streams=len(audit.versions),
        hash=digest(audit.ledger),
        facts_per_s=rate,
        violations=violations,
        compared=list(wanted.values()),
        rejected=audit.rejected,
        live_pods=len(audit.ledger.pods),
    )


def _fetch_state(url: str) -> LiveState | None:
    """A service that is down has no state to compare; that is no violation."""
    try:
        with urlopen(url, timeout=5) as answer:
            return msgspec.json.decode(answer.read(), type=LiveState)
    except (OSError, msgspec.MsgspecError):
        return None
