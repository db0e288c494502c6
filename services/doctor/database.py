"""What is wrong with the database: schema, rights of the login, leases, lag of the relay, clock,
growth. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from services.doctor.finding import Finding, note, problem, warning
from shared.eventlog.inspection import GIVEN_UP_S, Inspection
from shared.eventlog.revisions import is_ours

ABOUT = "database"
ROLES = ("observer", "relay", "binder", "silence")
"""Roles without which nothing moves; others (the mirror) are there where they are wanted."""
SHARED = ("scheduler", "topology-store")
"""Roles that need a member at least: `scheduler/topolog/0`, `topology-store/3`."""
SKEW_S = 2.0
RELAY_LAG_FACTS = 10_000
LONG_STREAM_FACTS = 1_000_000
"""A node's stream lives as long as its name. Nothing of the services reads one whole; `topolog replay explain` and `at` do."""
DAY_S = 86_400
ENOUGH_FACTS = 10_000
"""Below, an empty database's own size hides what a fact takes."""


def judge(seen: Inspection, *, pods: bool = True) -> Iterator[Finding]:
    """Findings, the worst first. Services that are no `pods` are `topolog up`'s, whose own database
    they own.
    """
    if not seen.works:
        mend = "kubectl -n topolog delete job migrations; kubectl apply -k <overlay>"
        if seen.revision and not is_ours(seen.revision):
            mend = "this is another program's database: check TOPOLOG_DATABASE_URL"
        elif seen.revision > seen.newest_revision:
            mend = "run doctor of the newer release"
        yield problem(
            ABOUT,
            f"schema revision {seen.revision or 'none'}, this release has {seen.newest_revision}",
            mend,
        )
        return
    if seen.revision != seen.newest_revision:
        yield note(
            ABOUT,
            f"schema revision {seen.revision} is of a newer release; this one ({seen.newest_revision}) works on it",
        )
    if seen.rank and pods:
        yield warning(
            ABOUT,
            f"the login {seen.login} is {seen.rank}: services need a member of topolog_writer alone",
            _login(),
        )
    for role in ROLES:
        yield from _lease(role, seen)
    for role in SHARED:
        if not any(
            name.startswith(f"{role}/") and left_s >= 0 for name, left_s in seen.leases.items()
        ):
            yield problem(
                ABOUT,
                f"the role {role} has no member",
                "kubectl -n topolog get pods; see docs/operate.md, TopologNoLeader",
            )
    if seen.head - seen.relayed > RELAY_LAG_FACTS:
        yield warning(
            ABOUT,
            f"the relay stands {seen.head - seen.relayed} facts behind the head",
            "topolog_relay_position; see NATS",
        )
    if seen.longest_events > LONG_STREAM_FACTS:
        text = f"the stream {seen.longest_stream} has {seen.longest_events} facts: what is asked of it alone takes long"
        yield warning(
            ABOUT,
            text,
            f"topolog replay log --stream {seen.longest_stream} --from -100; what writes so often?",
        )
    if abs(seen.clock_skew_s) > SKEW_S:
        text = f"the database's clock is {seen.clock_skew_s:+.1f} s from this machine's"
        yield warning(ABOUT, text, "chronyc tracking, on both machines")
    yield note(ABOUT, _growth(seen))


def _login() -> str:
    return "topolog database roles --password-dir DIR; the URL of topolog_service goes into the secret topolog-postgres"


def _since(left_s: float | None) -> str:
    if left_s is None:
        return "was never held"
    return (
        "was given up, and nobody has taken it"
        if left_s == GIVEN_UP_S
        else f"has had no holder for {-left_s:.0f} s"
    )


def _lease(role: str, seen: Inspection) -> Iterator[Finding]:
    left_s = seen.leases.get(role)
    if left_s is None or left_s < 0:
        yield problem(
            ABOUT,
            f"the role {role} {_since(left_s)}",
            "kubectl -n topolog get pods; see docs/operate.md, TopologNoLeader",
        )


def _growth(seen: Inspection) -> str:
    """GB a day, by what was measured over the newest facts."""
    size = f"{seen.head} facts, {seen.size_bytes / 1e9:.2f} GB"
    if seen.head < ENOUGH_FACTS or seen.span_s <= 0:
        return f"{size}; how it grows is told from {ENOUGH_FACTS} facts on"
    bytes_a_event = seen.size_bytes / seen.head
    events_a_day = seen.span_events / seen.span_s * DAY_S
    pods_per_s = seen.span_pods / seen.span_s
    grown = (
        f"{size}; at {pods_per_s:.2f} pods a second, as over the last {seen.span_s / 3600:.1f} h"
    )
    a_pod = f", {seen.span_events / seen.span_pods:.0f} facts a pod" if seen.span_pods else ""
    return f"{grown}, {events_a_day * bytes_a_event / 1e9:.2f} GB a day ({bytes_a_event:.0f} bytes a fact{a_pod})"
