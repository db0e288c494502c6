"""The options of `topolog up`, and their check. Values only."""

from __future__ import annotations

from pathlib import Path

import msgspec

from services.embedded.errors import EmbeddedError
from shared.domain.policies import POLICIES, SCOPES, SINGLE_NUMA_NODE

OWNERS = ("kubelet", "topolog")
CACHES = ("ledger", "overreserve", "discardreserved", "passthrough")
MAX_NODES, MAX_ZONES, MAX_PODS = 5_000, 8, 1_000_000
MAX_SCHEDULERS, MAX_STANDBYS = 8, 3
CELLS = "abcd"
# An unlimited number of pods.
ENDLESS = -1


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a run; `_s` is in seconds.

    `fresh` empties the data folder first. `pods` may be ENDLESS. `speed` is `max` or virtual
    seconds per second. `kubeconfig` names an outside cluster: then nothing is simulated. Empty
    `database_url` and `nats_url` mean the embedded servers; services get `database_url_file` and
    `nats_url_file` if these are set. `schedulers` share the pods; `standbys` are additional binders
    and topology-stores for failover; with `console`, the page in the browser runs, too. `cells`
    share nodes and pods, each with a log and services of its own. An empty `cache` leaves the
    choice to the scheduler's settings. `declared` is, by service, the variables of its settings,
    which it gets from this process.
    """

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
    owner: str = "kubelet"
    cache: str = ""
    seed: int = 1
    report_interval_s: float = 5.0
    report_on_change: bool = True
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
    console: bool = False
    cells: int = 1
    extra_env: dict[str, str] = {}
    declared: dict[str, tuple[str, ...]] = {}


class UsageError(EmbeddedError):
    """Invalid options; the message has all problems."""


def check(options: UpOptions) -> UpOptions:
    """Return the options, or raise UsageError with all problems."""
    problems = [
        *_between("--nodes", options.nodes, 1, MAX_NODES),
        *_between("--zones", options.zones, 1, MAX_ZONES),
        *([] if options.pods == ENDLESS else _between("--pods", options.pods, 0, MAX_PODS)),
        *_between("--report-interval", options.report_interval_s, 0.1, 3600),
        *_between("--exporters", options.exporters, 1, 64),
        *_between("--schedulers", options.schedulers, 1, MAX_SCHEDULERS),
        *_between("--standbys", options.standbys, 0, MAX_STANDBYS),
        *_between("--cells", options.cells, 1, len(CELLS)),
        *(
            ["--cells share the embedded database; leave --database-url out"]
            if options.cells > 1 and options.database_url
            else []
        ),
        *_between("--api-port", options.api_port, 0, 65_535),
        *_one_of("--policy", options.policy, POLICIES),
        *_one_of("--scope", options.scope, SCOPES),
        *_one_of("--owner", options.owner, OWNERS),
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
    if low <= value <= high:
        return []
    return [f"{flag} must be {low:g} to {high:g} (found {value:g})"]


def _one_of(flag: str, value: str, allowed: tuple[str, ...]) -> list[str]:
    if value in allowed:
        return []
    return [f"{flag} must be one of {', '.join(allowed)} (found {value!r})"]


def _load(options: UpOptions) -> list[str]:
    if 0 < options.load <= 10:
        return []
    return [f"--load must be a share of the cluster, above 0 to 10 (found {options.load:g})"]


def _speed(text: str) -> list[str]:
    try:
        is_valid = text == "max" or 0 < float(text) <= 1_000_000
    except ValueError:
        is_valid = False
    if is_valid:
        return []
    return [f"--speed must be max, or virtual seconds per second above 0 (found {text!r})"]


def _fresh(options: UpOptions) -> list[str]:
    if options.fresh and options.database_url:
        return [
            "--fresh does not empty the log in the database of --database-url; "
            "empty that database yourself"
        ]
    return []


def _workload(text: str) -> list[str]:
    kind, _, folder = text.partition(":")
    if kind in ("demo", "gangs", "none") and not folder:
        return []
    if kind != "openb":
        return [f"--workload must be demo, gangs, openb:FOLDER or none (found {text!r})"]
    if Path(folder).is_dir():
        return []
    return [f"--workload openb: no folder {folder!r}; name the folder with the trace's CSV files"]
