"""What `topolog up` was asked for, and whether it can be meant. Values only."""

from __future__ import annotations

from pathlib import Path

import msgspec

from services.embedded.errors import EmbeddedError
from shared.domain.policies import POLICIES, SCOPES, SINGLE_NUMA_NODE

CACHES = ("ledger", "overreserve", "discardreserved", "passthrough")
MAX_NODES, MAX_ZONES, MAX_PODS = 5_000, 8, 1_000_000
MAX_SCHEDULERS, MAX_STANDBYS = 8, 3
ENDLESS = -1
"""As a number of pods: without end."""


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds for `_s`. `fresh` empties the data folder first. `pods` may be ENDLESS. `speed` is
    `max` or virtual seconds a real second. `kubeconfig` names an outside cluster: then nothing is
    simulated. Empty `database_url` and `nats_url` mean the embedded servers; the services are given
    their files where these are named. `schedulers` share the pods; `standbys` are further binders
    and topology-stores, ready to take over. An empty `cache` leaves it to the scheduler's settings.
    `declared`: by service, the variables that its settings know and that it gets of this process'
    environment."""

    data_dir: Path
    fresh: bool = False
    nodes: int = 8
    zones: int = 2
    workload: str = "demo"
    pods: int = ENDLESS
    load: float = 0.9
    speed: str = "1"
    api_port: int = 0
    policy: str = SINGLE_NUMA_NODE
    scope: str = "container"
    cache: str = ""
    seed: int = 1
    report_interval_s: float = 5.0
    exit_when_idle: bool = False
    idle_after_s: float = 60.0
    json: bool = False
    database_url: str = ""
    database_url_file: str = ""
    nats_url: str = ""
    nats_url_file: str = ""
    kubeconfig: str = ""
    advertise: str = ""
    exporters: int = 2
    schedulers: int = 1
    standbys: int = 0
    extra_env: dict[str, str] = {}
    declared: dict[str, tuple[str, ...]] = {}


class UsageError(EmbeddedError):
    """An option that cannot be meant; the message has a line for each."""


def check(options: UpOptions) -> UpOptions:
    """The options, or UsageError with every problem at once."""
    problems = [
        *_between("--nodes", options.nodes, 1, MAX_NODES),
        *_between("--zones", options.zones, 1, MAX_ZONES),
        *([] if options.pods == ENDLESS else _between("--pods", options.pods, 0, MAX_PODS)),
        *_between("--report-interval", options.report_interval_s, 0.1, 3600),
        *_between("--exporters", options.exporters, 1, 64),
        *_between("--schedulers", options.schedulers, 1, MAX_SCHEDULERS),
        *_between("--standbys", options.standbys, 0, MAX_STANDBYS),
        *_between("--api-port", options.api_port, 0, 65_535),
        *_one_of("--policy", options.policy, POLICIES),
        *_one_of("--scope", options.scope, SCOPES),
        *(_one_of("--cache", options.cache, CACHES) if options.cache else []),
        *_load(options),
        *_speed(options.speed),
        *_workload(options.workload),
        *_fresh(options),
    ]
    if problems:
        raise UsageError("; ".join(problems), "topolog up --help")
    return options


def _between(flag: str, value: float, low: float, high: float) -> list[str]:
    return [] if low <= value <= high else [f"{flag} is {value:g}; give {low:g} to {high:g}"]


def _one_of(flag: str, value: str, known: tuple[str, ...]) -> list[str]:
    return [] if value in known else [f"{flag} is {value!r}; give one of {', '.join(known)}"]


def _load(options: UpOptions) -> list[str]:
    return (
        []
        if 0 < options.load <= 10
        else [f"--load is {options.load:g}; give a share of the cluster, above 0 to 10"]
    )


def _speed(text: str) -> list[str]:
    try:
        good = text == "max" or 0 < float(text) <= 1_000_000
    except ValueError:
        good = False
    return (
        []
        if good
        else [f"--speed is {text!r}; give max, or virtual seconds a real second (above 0)"]
    )


def _fresh(options: UpOptions) -> list[str]:
    if options.fresh and options.database_url:
        return [
            "--fresh would leave the log behind, which is in the database of --database-url; empty that one by its own means"
        ]
    return []


def _workload(text: str) -> list[str]:
    kind, _, folder = text.partition(":")
    if kind in ("demo", "none") and not folder:
        return []
    if kind != "openb":
        return [f"--workload is {text!r}; give demo, openb:FOLDER or none"]
    return (
        []
        if Path(folder).is_dir()
        else [f"--workload openb: no folder {folder!r}; name the folder with the trace's CSV files"]
    )
