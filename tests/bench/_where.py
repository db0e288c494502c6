"""Causes of the CPU time of a road's services: samples of their stacks
(`_sampling/sitecustomize.py`), attributed by the first rule that matches a function in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.bench._road_processes import SERVICES

SAMPLING = Path(__file__).with_name("_sampling")
RULES = (
    ("metrics that are asked for", ("shared/runtime/http.py:metrics",)),
    ("explaining why nothing fits", ("explain/explain.py:unplaceable",)),
    ("deciding", ("services/scheduler/handlers.py:_decide",)),
    ("the watch: bytes to lines", ("kube/client.py:_lines",)),
    ("the watch: JSON", ("kube/client.py:_decoded",)),
    (
        "what of an object is news",
        ("watch/kinds.py:", "watch/pods_and_nodes.py:", "watch/cluster_objects.py:"),
    ),
    ("recording what was observed", ("scheduler/watch/",)),
    ("the relay", ("shared/runtime/relay.py:",)),
    ("the fold", ("projector.py:_fold_run", "projector.py:_handle")),
    (
        "reading pages, waiting for the log",
        ("runtime/consumer.py:", "postgres_watch.py:", ":_process_notification"),
    ),
    ("appends", ("eventlog/postgres_append.py:", "runtime/appending.py:")),
    (
        "leases, members",
        ("runtime/leadership.py:", "runtime/membership.py:", "runtime/lent_lease.py:"),
    ),
    ("events for people", ("binder/announcer.py:", "binder/pending_announcements.py:")),
    ("bindings", ("services/binder/",)),
    ("NodeResourceTopology objects", ("topology_store/mirror", "topology_store/objects.py:")),
    ("judging reports", ("topology_store/handlers.py:", "topology_store/silence.py:")),
    ("calls to the API server", ("shared/kube/",)),
    ("noticing what kubelets wrote", ("exporter/watch.py:", "exporter/handlers.py:_trail")),
    ("podresources: what may be handed out", ("source_grpc.py:allocatable",)),
    ("podresources: List", ("source_grpc.py:pods",)),
    ("/sys", ("exporter/scan.py:_read_machine",)),
    ("checkpoints, configuration", ("exporter/scan.py:",)),
    ("the report", ("exporter/core.py:", "exporter/outbox.py:", "exporter/handlers.py:_publish")),
    ("the rest of a scan", ("exporter/handlers.py:",)),
    ("the bus", ("nats/", "shared/bus/")),
    ("imports", ("importlib",)),
    ("event loop, sockets", ("",)),
)


def where(
    folder: Path, began_s: float, ended_s: float, ms_per_pod: dict[str, float]
) -> Iterator[tuple[str, str, float]]:
    """Yield (service, cause, milliseconds a pod) of the samples between two moments, most first."""
    by_rule: dict[str, Counter[str]] = {}
    for path in folder.iterdir():
        command, *samples = path.read_text().splitlines()
        name = next((name for module, name in SERVICES.items() if module in command.split()), "")
        taken = (sample.split("\t", 1) for sample in samples)
        by_rule.setdefault(name, Counter()).update(
            cause(stack) for at, stack in taken if began_s <= float(at) <= ended_s
        )
    for name in sorted(by_rule.keys() & ms_per_pod.keys()):
        all_of_it = by_rule[name].total() or 1
        for what, times in by_rule[name].most_common():
            yield name, what, round(ms_per_pod[name] * times / all_of_it, 3)


def cause(stack: str) -> str:
    """Return what the time of a stack is spent on."""
    return next(what for what, functions in RULES if any(each in stack for each in functions))
