"""Events have the fields that decisions need and no others: no manifests in annotations, no
environment variables, no arguments.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.snapshot import topology_policy as policy
from services.scheduler.watch import pods_and_nodes
from services.scheduler.watch.seen_specs import SeenSpecs
from shared.domain.kept import POD_ANNOTATIONS, POD_LABELS, digest, trimmed
from shared.domain.pod import Pod
from shared.events.cluster_events import PodObserved
from shared.events.codec import encode
from shared.ledger.state import Ledger

SECRET = "s3cr3t-t0ken"
TERM = {
    "labelSelector": {
        "matchLabels": {"team": "a"},
        "matchExpressions": [{"key": "tier", "operator": "Exists"}],
    }
}
AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{**TERM, "topologyKey": "zone"}],
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 1,
                "podAffinityTerm": {
                    "labelSelector": {"matchLabels": {"role": "x"}},
                    "matchLabelKeys": ["shard"],
                },
            }
        ],
    }
}
SPREAD = [
    {
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"ring": "1"}},
    }
]


def manifest(**spec: Any) -> dict[str, Any]:
    """Return a pod with a secret in every field that may hold one."""
    container = {
        "name": "c",
        "image": f"registry.example/{SECRET}",
        "env": [{"name": "TOKEN", "value": SECRET}],
        "args": [SECRET],
        "command": [SECRET],
        "resources": {"requests": {"cpu": "1"}},
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}},
    }
    labels = dict.fromkeys(("app", "team", "tier", "role", "shard", "ring"), "kept") | {
        "secret": SECRET
    }
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": f'{{"env": "{SECRET}"}}',
        "vault.example/token": SECRET,
        policy.POD_ANNOTATION: "{}",
    }
    return {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "schedulerName": "topolog",
            "containers": [container],
            "initContainers": [{**container, "name": "i"}],
            **spec,
        },
        "status": {},
    }


def observed(obj: dict[str, Any]) -> PodObserved:
    event = pods_and_nodes.pod_event(Ledger(), "topolog", obj, SeenSpecs())
    assert isinstance(event, PodObserved)
    return event


def test_no_secret_of_a_manifest_enters_a_event() -> None:
    event = observed(
        manifest(volumes=[{"name": "v", "configMap": {"name": "x", "items": [{"key": SECRET}]}}])
    )
    assert SECRET.encode() not in encode(event)
    assert event.pod.annotations == {policy.POD_ANNOTATION: "{}"}
    assert event.pod.labels["app"] == "kept"
    assert {value for key, value in event.pod.labels.items() if key != "app"} == {
        digest("kept"),
        digest(SECRET),
    }


def test_labels_that_the_pods_own_selectors_name_are_kept() -> None:
    event = observed(manifest(affinity=AFFINITY, topologySpreadConstraints=SPREAD))
    assert {key for key, value in event.pod.labels.items() if value == "kept"} == {
        "app",
        "team",
        "tier",
        "role",
        "shard",
        "ring",
    }


def test_nodes_keep_their_labels_and_none_of_their_annotations() -> None:
    node = {
        "metadata": {
            "name": "n",
            "uid": "u",
            "labels": {"any/key": "v"},
            "annotations": {"a": SECRET},
        }
    }
    event = pods_and_nodes.node_event(Ledger(), node)
    assert event is not None
    assert event.labels == {"any/key": "v"}
    assert SECRET.encode() not in encode(event)


def test_labels_and_annotations_that_decide_are_on_the_list() -> None:
    assert policy.POD_ANNOTATION in POD_ANNOTATIONS
    assert "app" in POD_LABELS


_JSON: Any = st.recursive(
    st.none() | st.booleans() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "podAffinity",
                    "podAntiAffinity",
                    "required",
                    "labelSelector",
                    "matchLabels",
                    "matchExpressions",
                    "key",
                    "podAffinityTerm",
                    "matchLabelKeys",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
)


@given(_JSON, _JSON)
def test_selectors_of_whatever_shape_name_nothing_and_raise_nothing(
    affinity: Any, spread: Any
) -> None:
    trimmed(
        Pod("u", "ns", "p", labels={"a": "1"}),
        {"affinity": affinity, "topologySpreadConstraints": spread},
    )


@pytest.mark.parametrize("label", sorted(POD_LABELS))
def test_labels_that_workloads_are_distinguished_by_are_kept(label: str) -> None:
    assert trimmed(Pod("u", "ns", "p", labels={label: "v"}), {}).labels == {label: "v"}
