"""Judge the database: schema, login, leases, lag of the relay, clock, growth. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from services.doctor.finding import Finding, note, problem, warning
from shared.eventlog.inspection import GIVEN_UP_S, Inspection
from shared.eventlog.revisions import is_ours

ABOUT = "database"
# Roles without which no pod is placed. Others (the mirror) exist only if they are configured.
ROLES = ("observer", "relay", "binder", "silence")
# Roles that need at least one member: `scheduler/topolog/0`, `topology-store/3`.
SHARED = ("scheduler", "topology-store")
SKEW_S = 2.0
RELAY_LAG_EVENTS = 10_000
# The stream of a node grows as long as the node's name is in use. Services never read a whole
# stream, but `topolog replay explain` and `topolog replay at` do.
LONG_STREAM_EVENTS = 1_000_000
DAY_S = 86_400
# components/archive keeps 30 days in rows and 60 archived, which take 0.3 of rows. Then the bytes
# of a pruned pod remain, and those of its events in files (docs/backup.md).
ROW_DAYS, PRUNED_POD_BYTES, FILED_POD_BYTES = 30 + 60 * 0.3, 177, 1_100
# Below this, the size of an empty database hides the size of an event.
ENOUGH_EVENTS = 10_000
_LOGIN_REMEDY = (
    "topolog database roles --password-dir DIR; "
    "the URL of topolog_service goes into the secret topolog-postgres"
)

_DURABLE_REMEDY = (
    "set them to on in postgresql.conf or with ALTER SYSTEM, and check ALTER ROLE and ALTER "
    "DATABASE (SELECT * FROM pg_db_role_setting); then SELECT pg_reload_conf()"
)


def judge(seen: Inspection, *, in_cluster: bool = True, running: bool = True) -> Iterator[Finding]:
    """Yield the findings, the worst first. Services that are not `in_cluster` belong to `topolog
    up`, and own their database. If no service is `running`, a lease without a holder and a stopped
    relay are expected.
    """
    if not seen.works:
        yield _wrong_schema(seen)
        return
    if seen.revision != seen.newest_revision:
        yield note(
            ABOUT,
            f"schema revision {seen.revision} is of a newer release; "
            f"this release ({seen.newest_revision}) works on it",
        )
    if seen.rank and in_cluster:
        yield warning(
            ABOUT,
            f"the login {seen.login} is {seen.rank}: "
            "services need a member of topolog_writer, and nothing more",
            _LOGIN_REMEDY,
        )
    if running:
        yield from _liveness(seen)
    if seen.longest_events > LONG_STREAM_EVENTS:
        yield warning(
            ABOUT,
            f"the stream {seen.longest_stream} has {seen.longest_events} events: "
            "commands that read all of it are slow",
            f"topolog replay log --stream {seen.longest_stream} --from -100 shows what writes it",
        )
    if abs(seen.clock_skew_s) > SKEW_S:
        yield warning(
            ABOUT,
            f"the database's clock differs by {seen.clock_skew_s:+.1f} s from this machine's",
            "chronyc tracking, on both machines",
        )
    if seen.not_durable:
        off = ", ".join(seen.not_durable)
        yield warning(
            ABOUT,
            f"{off} off: a crash of the database may lose events that it acknowledged, such as "
            "reservations of pods that run",
            _DURABLE_REMEDY,
        )
    yield note(ABOUT, _growth(seen))


def _wrong_schema(seen: Inspection) -> Finding:
    remedy = "kubectl -n topolog delete job migrations; kubectl apply -k <overlay>"
    if seen.revision and not is_ours(seen.revision):
        remedy = "this is another program's database: check TOPOLOG_DATABASE_URL"
    elif seen.revision > seen.newest_revision:
        remedy = "run doctor of the newer release"
    revision = seen.revision or "none"
    return problem(
        ABOUT, f"schema revision {revision}, this release has {seen.newest_revision}", remedy
    )


def _liveness(seen: Inspection) -> Iterator[Finding]:
    remedy = "kubectl -n topolog get pods; see docs/operate.md, TopologNoLeader"
    for role in ROLES:
        left_s = seen.leases.get(role)
        if left_s is None or left_s < 0:
            yield problem(ABOUT, f"the role {role} {_since(left_s)}", remedy)
    for role in SHARED:
        members = [left_s for name, left_s in seen.leases.items() if name.startswith(f"{role}/")]
        if not any(left_s >= 0 for left_s in members):
            yield problem(ABOUT, f"the role {role} has no member", remedy)
    if seen.head - seen.relayed > RELAY_LAG_EVENTS:
        yield warning(
            ABOUT,
            f"the relay is {seen.head - seen.relayed} events behind the head",
            "check the metric topolog_relay_position, and NATS",
        )


def _since(left_s: float | None) -> str:
    if left_s is None:
        return "never had a holder"
    if left_s == GIVEN_UP_S:
        return "was given up and has no holder"
    return f"has had no holder for {-left_s:.0f} s"


def _growth(seen: Inspection) -> str:
    """Return the growth in GB a day, measured over the newest events."""
    size = f"{seen.head} events, {seen.size_bytes / 1e9:.2f} GB"
    if seen.head < ENOUGH_EVENTS or seen.span_s <= 0:
        return f"{size}; growth is measured from {ENOUGH_EVENTS} events on"
    event_bytes = seen.row_bytes
    events_per_day = seen.span_events / seen.span_s * DAY_S
    pods_per_s = seen.span_pods / seen.span_s
    pods_per_year = pods_per_s * 365 * DAY_S
    per_pod = f", {seen.span_events / seen.span_pods:.0f} events a pod" if seen.span_pods else ""
    return (
        f"{size}; at {pods_per_s:.2f} pods a second, as over the last {seen.span_s / 3600:.1f} h, "
        f"{events_per_day * event_bytes / 1e9:.2f} GB a day "
        f"({event_bytes:.0f} bytes an event{per_pod}); with components/archive that needs "
        f"{events_per_day * event_bytes * ROW_DAYS / 1e9:.0f} GB, and "
        f"{pods_per_year * PRUNED_POD_BYTES / 1e9:.0f} GB more a year, and "
        f"{pods_per_year * FILED_POD_BYTES / 1e9:.0f} GB of files a year"
    )
