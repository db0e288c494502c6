"""`topolog reserve ...`: bookings, which are room that is kept for pods that come later. Each verb
appends one event, and the schedulers do the rest.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from services.cli.deciding_here import deciding_here
from services.cli.log import Database, DataDir, Json, run
from services.cli.log_source import LogSource
from services.cli.node import ROLE, TRIES
from services.cli.output import EXIT_USAGE, CommandError, json_line, say, say_table
from services.cli.verbs import group
from services.replay.deciding_state import followed_at
from services.replay.defragmenting import wanted_pod
from services.replay.filters import clock
from services.replay.words import amounts_text
from shared.domain.booking import AllocatePolicy, Owner, Terms, pod_for
from shared.domain.durations import nanoseconds
from shared.domain.effective import effective_request
from shared.eventlog.port import Appended, Commit, Draft, EventLog
from shared.events import streams
from shared.events.scheduling_events import BookingEnded, BookingMade
from shared.kube.reservation_objects import template_of
from shared.ledger.state import Ledger, LedgerPod

PREFIX = "booking-"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

reserve_app = group("Keep room for pods that come later.")


def register(app: typer.Typer) -> None:
    app.add_typer(reserve_app, name="reserve")


@reserve_app.command("create")
def create_command(
    name: Annotated[str, typer.Argument(help="Name of the booking, as a Kubernetes label.")],
    shape: Annotated[
        str,
        typer.Option("--for", help="A request such as cpu=8,memory=16Gi, or a pod of the log."),
    ],
    labels: Annotated[
        list[str], typer.Option("--owner", help="Label KEY=VALUE of its pods; all must match.")
    ] = [],  # noqa: B006 - typer reads the default only
    namespace: Annotated[str, typer.Option(help="Namespace of its pods.")] = "",
    pod: Annotated[str, typer.Option(help="Name of its pod.")] = "",
    policy: Annotated[
        str, typer.Option(help="Aligned, or Restricted: no pod takes more than is left of it.")
    ] = "Aligned",
    once: Annotated[bool, typer.Option("--once", help="End it with its first pod.")] = False,
    ttl: Annotated[str, typer.Option(help="End it after this time, such as 24h.")] = "",
    node_selector: Annotated[
        list[str], typer.Option(help="Label KEY=VALUE of its node; all must match.")
    ] = [],  # noqa: B006
    database_url: Database = "",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Keep room on a node for pods with these labels, namespace or name.

    The schedulers choose the node and its zones as for a pod. Other pods do not take the room, and
    it is never evicted.
    """
    now_us, ttl_ns = time.time_ns() // 1000, nanoseconds(ttl or "0")
    owner = Owner(namespace, pod, pairs("--owner", labels))
    if owner == Owner():
        raise usage("the booking would have no owners", "--owner KEY=VALUE, --namespace or --pod")
    if not _NAME.fullmatch(name):
        raise usage(f"name {name!r} is no label", "use a-z, 0-9 and -, at most 63 characters")
    if policy not in ("Aligned", "Restricted"):
        raise usage(f"--policy {policy!r} is unknown", "--policy Aligned or Restricted")
    if ttl_ns is None:
        raise usage(f"--ttl {ttl!r} is no duration", "--ttl 24h, or 1h30m")
    expires_us = now_us + ttl_ns // 1000 if ttl_ns else 0
    chosen: AllocatePolicy = "Restricted" if policy == "Restricted" else "Aligned"
    terms = Terms((owner,), chosen, once, expires_us)
    selector = pairs("--node-selector", node_selector)
    position = run(
        LogSource(database_url, data_dir, writes=True),
        lambda log: create(log, name, shape, terms, selector, now_us),
    )
    if as_json:
        json_line({"booking": name, "position": position})
    else:
        say(f"booking {name} is made (position {position}); see topolog reserve list")


@reserve_app.command("delete")
def delete_command(
    name: Annotated[str, typer.Argument(help="Name of the booking.")],
    database_url: Database = "",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Give the rest of a booking back. Its pods keep what they have."""
    now_us = time.time_ns() // 1000
    position = run(
        LogSource(database_url, data_dir, writes=True), lambda log: delete(log, name, now_us)
    )
    if as_json:
        json_line({"booking": name, "position": position})
    else:
        say(f"booking {name} is deleted (position {position})")


@reserve_app.command("list")
def list_command(
    database_url: Database = "", data_dir: DataDir = None, as_json: Json = False
) -> None:
    """Show bookings, their nodes, and what their pods left."""
    bookings = run(LogSource(database_url, data_dir), listed)
    if as_json:
        for booking in bookings:
            json_line(booking)
        return
    rows = [
        [
            booking["booking"],
            booking["node"] or booking["waits"],
            amounts_text(booking["request"]),
            amounts_text(booking["left"]) or "nothing",
            ", ".join(map(str, booking["zones"])),
            ", ".join(booking["cards"]),
            ", ".join(booking["owners"]),
            ", ".join(booking["pods"]),
            booking["expires"],
        ]
        for booking in bookings
    ]
    names = ("booking", "node", "for", "left", "zones", "cards", "owners", "pods", "expires")
    say_table(names, rows) if rows else say("no bookings")


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = dict[str, str]()
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise usage(f"{option} {text!r} is no KEY=VALUE", f"{option} app=web")
        pairs[key] = value
    return pairs


def usage(problem: str, remedy: str) -> CommandError:
    return CommandError(problem, remedy, EXIT_USAGE)


async def create(
    log: EventLog, name: str, shape: str, terms: Terms, selector: dict[str, str], now_us: int
) -> int:
    """Append a booking and return the event's position. Raises CommandError if the name is taken,
    and FilterError for a shape that cannot be read."""
    uid, wanted = PREFIX + name, await wanted_pod(log, shape, 0)
    like = template_of(wanted, deciding_here(os.environ).scheduler_name)
    if selector:
        constraints = msgspec.structs.replace(like.constraints, node_selector=selector)
        like = msgspec.structs.replace(like, constraints=constraints)
    event = BookingMade(uid, pod_for(uid, name, effective_request(wanted), like), terms)
    return await _append(log, "book", event, now_us)


async def delete(log: EventLog, name: str, now_us: int) -> int:
    """Append the end of a booking and return its position. Raises CommandError without one."""
    return await _append(log, "unbook", BookingEnded(PREFIX + name), now_us)


async def _append(log: EventLog, verb: str, event: BookingMade | BookingEnded, now_us: int) -> int:
    stream, name = streams.pod(event.uid), event.uid.removeprefix(PREFIX)
    for _ in range(TRIES):
        version = (await log.versions([stream]))[stream]
        state, _quarantined = await followed_at(log, await log.head())
        is_open = event.uid in state.ledger.pods
        if is_open and isinstance(event, BookingMade):
            raise CommandError(f"there is a booking {name!r}", "another name")
        if not is_open and isinstance(event, BookingEnded):
            raise CommandError(f"there is no booking {name!r}", "topolog reserve list")
        commit_id = f"{verb}/{event.uid}/{version}"
        draft = Draft(stream, event, version)
        commit = Commit(commit_id, ROLE, 0, now_us, (draft,), correlation=event.uid)
        outcome = (await log.append([commit]))[0]
        if isinstance(outcome, Appended):
            return outcome.last
    raise CommandError(f"booking {name!r} changed during each of {TRIES} tries", "try again")


async def listed(log: EventLog) -> list[dict[str, Any]]:
    """Return the bookings at the head, the oldest first."""
    state, _quarantined = await followed_at(log, await log.head())
    return [
        _row(state.ledger, uid, entry)
        for uid, entry in state.ledger.pods.items()
        if entry.booking is not None
    ]


def _row(ledger: Ledger, uid: str, entry: LedgerPod) -> dict[str, Any]:
    assert entry.booking is not None
    terms = entry.booking.terms
    node = ledger.nodes.get(entry.node)
    zones = entry.allocation.zones if entry.allocation is not None else {}
    if node is not None and not zones:
        zones = node.charges[uid].zones
    return {
        "booking": entry.pod.name,
        "uid": uid,
        "node": entry.node,
        "waits": "" if entry.node else _wait(entry),
        "request": effective_request(entry.booking.pod),
        "left": effective_request(entry.pod),
        "zones": sorted(zone for zone, amounts in zones.items() if amounts),
        "cards": [
            f"{card.type} {card.minor}"
            for card in (entry.allocation.devices if entry.allocation is not None else ())
            if any(card.resources.values())
        ],
        "owners": [_owner_text(owner) for owner in terms.owners],
        "policy": terms.policy,
        "once": terms.once,
        "pods": sorted(each.pod.key for each in ledger.pods.values() if each.drawn_from == uid),
        "expires": clock(terms.expires_us) if terms.expires_us else "",
        "terms": msgspec.to_builtins(terms),
    }


def _wait(entry: LedgerPod) -> str:
    """Return why a booking has no node."""
    if entry.terminating:
        return "ended; delete its Reservation object"
    return f"waits: {entry.verdict or entry.problem or 'not decided yet'}"


def _owner_text(owner: Owner) -> str:
    labels = [f"{key}={value}" for key, value in sorted(owner.labels.items())]
    labels += [f"{key} {word} {','.join(them)}".rstrip() for key, word, them in owner.requirements]
    name = f"{owner.namespace or '*'}/{owner.name or owner.uid or '*'}"
    controller = " ".join(filter(None, owner.controller))
    return " ".join(filter(None, (name if name != "*/*" else "", controller, ",".join(labels))))
