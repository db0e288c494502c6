"""The pods of the simulation: mostly Guaranteed, one to three containers, now and then an init
container or a sidecar.
"""

from __future__ import annotations

import random
from typing import Any

from services.simulator.cluster import GPU
from shared.domain.gang import KOORDINATOR_MIN, KOORDINATOR_NAME

NAMES = tuple(f"p{number}" for number in range(14))
# Priority classes by name.
PRIORITIES = {"middle": 100, "high": 1000}
OURS, FOREIGN = "topolog", "other"
# Every sixth pod is in no gang; the others are in gangs of two or three by their names.
GANG_NAMES, ALONE_EVERY = 3, 6


def manifest(rng: random.Random, name: str, rich: bool = False, small: str = "") -> dict[str, Any]:
    """A Pod object as a client would create it. `rich`: priorities, and now and then hugepages, or
    more than a small zone has. `small`: nothing is scarce but CPUs; `tight` asks for most of a
    small zone's, `pairs` in two containers."""
    if small:
        return _small(rng, name, small)
    ours = rng.random() < 0.85
    guaranteed = rng.random() < 0.85
    spec: dict[str, Any] = {
        "schedulerName": OURS if ours else FOREIGN,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [
            _container(rng, f"c{at}", guaranteed) for at in range(rng.choice((1, 1, 1, 1, 2)))
        ],
    }
    first = [_first(rng, at, guaranteed) for at in range(rng.choice((0, 0, 0, 0, 0, 1, 2)))]
    if first:
        spec["initContainers"] = first
    if rich:
        spec["priorityClassName"] = rng.choice(("", "", "middle", "middle", "high"))
    if rich and rng.random() < 0.3:
        _enrich(rng, spec["containers"][0]["resources"], guaranteed)
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def join_gang(made: dict[str, Any]) -> None:
    """Make the pod a member of a gang, by its name."""
    number = NAMES.index(made["metadata"]["name"])
    if made["spec"]["schedulerName"] == OURS and (number + 1) % ALONE_EVERY:
        group = number // GANG_NAMES
        made["metadata"]["annotations"] = {
            KOORDINATOR_NAME: f"gang-{group}",
            KOORDINATOR_MIN: str(2 + group % 2),
        }


def _small(rng: random.Random, name: str, kind: str) -> dict[str, Any]:
    asked = [("1", "2", "2", "3", "3")] if kind == "tight" else [("1", "2", "3"), ("2", "3")]
    containers = []
    for index, choices in enumerate(asked):
        amounts = {"cpu": rng.choice(choices), "memory": "64Mi"}
        resources = {"requests": amounts, "limits": amounts}
        containers.append(
            {"name": f"c{index}", "image": "registry.example/pause:1", "resources": resources}
        )
    spec = {
        "schedulerName": OURS,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": containers,
    }
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec | {"priority": 0}}


def _enrich(rng: random.Random, resources: dict[str, dict[str, str]], guaranteed: bool) -> None:
    more = rng.choice(
        ({"hugepages-2Mi": "64Mi"}, {"hugepages-2Mi": "640Mi"}, {"cpu": "6"}, {"memory": "6Gi"})
    )
    resources["requests"] |= more
    resources["limits"] |= more if guaranteed or "hugepages-2Mi" in more else {}


def _first(rng: random.Random, at: int, guaranteed: bool) -> dict[str, Any]:
    made = _container(rng, f"i{at}", guaranteed)
    if rng.random() < 0.4:
        made["restartPolicy"] = "Always"
    return made


def _container(rng: random.Random, name: str, guaranteed: bool) -> dict[str, Any]:
    asked = {
        "cpu": rng.choice(("1", "1", "2", "2", "3", "500m")),
        "memory": rng.choice(("256Mi", "1Gi", "2Gi")),
    }
    device = {GPU: rng.choice(("1", "1", "2"))} if rng.random() < 0.25 else {}
    limits = {**asked, **device} if guaranteed else device
    return {
        "name": name,
        "image": "registry.example/pause:1",
        "resources": {"requests": {**asked, **device}, "limits": limits},
    }
