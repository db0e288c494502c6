"""The effect of priority classes and runtime classes on pods, compared with the answers of
kube-apiserver 1.36.2 to the same requests.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.core.refusals import Refusal

Json = dict[str, Any]
RECORDED: list[Json] = json.loads(
    gzip.decompress((Path(__file__).parent / "recordings" / "pod_classes.json.gz").read_bytes())
)
NAMES = ("kind", "apiVersion")
# The recorded server ran without the admission plugin that gives them.
ACCOUNT = ("serviceAccount", "serviceAccountName")


def answers() -> dict[str, tuple[int, Json]]:
    """Return the answers of the simulated server to the recorded requests, in order."""
    store, outcomes = ClusterStore(seed=1), {}
    for recorded in RECORDED:
        created_object = store.create(recorded["kind"], recorded["body"])
        outcomes[recorded["name"]] = (
            (created_object.code, created_object.body)
            if isinstance(created_object, Refusal)
            else (201, created_object.obj)
        )
    return outcomes


OURS = answers()


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda one: one["name"])
def test_classes_and_pods_are_completed_and_refused_as_the_real_server_does(recorded: Json) -> None:
    code, ours = OURS[recorded["name"]]
    theirs = recorded["answer"]
    assert (code, ours.get("message", "")) == (recorded["code"], theirs.get("message", ""))
    if code != 201:
        assert ours == theirs
    elif "spec" in theirs:
        assert {
            field: value for field, value in ours["spec"].items() if field not in ACCOUNT
        } == theirs["spec"]
    else:
        fields = {field: value for field, value in ours.items() if field != "metadata"}
        assert fields == {
            field: value for field, value in theirs.items() if field not in ("metadata", *NAMES)
        }


def test_an_update_that_says_nothing_of_the_priority_leaves_it() -> None:
    store = ClusterStore(seed=1)
    store.create(
        "priorityclasses",
        {"metadata": {"name": "gold"}, "value": 1000, "preemptionPolicy": "Never"},
    )
    spec = {"priorityClassName": "gold", "containers": [{"name": "c", "image": "x"}]}
    created_object = store.create("pods", {"metadata": {"name": "p"}, "spec": spec})
    assert not isinstance(created_object, Refusal)
    kept = ("priority", "preemptionPolicy")
    said = {
        field: value for field, value in created_object.obj["spec"].items() if field not in kept
    }
    changed = store.update(
        "pods", {"metadata": {**created_object.obj["metadata"], "labels": {"a": "b"}}, "spec": said}
    )
    assert not isinstance(changed, Refusal), changed
    assert (changed.obj["spec"]["priority"], changed.obj["spec"]["preemptionPolicy"]) == (
        1000,
        "Never",
    )
