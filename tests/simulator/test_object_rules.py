"""Quantities, patches, pod validation and what kubectl prints, each against plain expectations."""

from __future__ import annotations

import copy
import gzip
import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.core import kinds, pods, quantities, tables
from services.simulator.api.core.patches import PatchError, json_patch, merge_patch
from services.simulator.api.core.refusals import Refusal
from services.simulator.api.core.selectors import from_label_selector, parse_labels
from services.simulator.api.core.store import Entry
from services.simulator.api.core.strategic import strategic_merge

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
RECORDED = Path(__file__).parent / "recordings"
NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
SUFFIXES = st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti", "u", "n"])


@given(st.integers(-(10**9), 10**9), SUFFIXES)
def test_writing_a_quantity_canonically_keeps_its_value(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    canonical = quantities.canonical(text)
    assert canonical is not None
    assert quantities.value_of(canonical) == quantities.value_of(text)
    assert quantities.canonical(canonical) == canonical


@pytest.mark.parametrize(
    ("given_text", "wanted"),
    [
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1000m", "1"),
        ("2", "2"),
        ("1500m", "1500m"),
        ("1e3", "1e3"),
        ("0", "0"),
        ("1000", "1k"),
        ("512Ki", "512Ki"),
    ],
)
def test_quantities_are_written_as_the_api_server_writes_them(given_text: str, wanted: str) -> None:
    assert quantities.canonical(given_text) == wanted


@pytest.mark.parametrize(
    "text", ["abc", "", "1x", "--1", "1 Gi", "Gi", "1e99", "1.2.3", "0x10", "1e"]
)
def test_text_that_is_no_quantity_gives_none(text: str) -> None:
    assert quantities.canonical(text) is None


@given(st.decimals(min_value=0, max_value=1000, places=3, allow_nan=False))
def test_a_decimal_has_its_exact_value(number: Any) -> None:
    assert quantities.value_of(str(number)) == Fraction(str(number))


JSON = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
)


def _merge_reference(target: Any, patch: Any) -> Any:
    """Apply a patch by the pseudo code of RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = _merge_reference(target.get(name), value)
    return target


@given(JSON, JSON)
def test_a_merge_patch_follows_the_rfc(target: Any, patch: Any) -> None:
    assert merge_patch(target, patch) == _merge_reference(target, patch)


@pytest.mark.parametrize(
    ("target", "steps", "wanted"),
    [
        (
            {"foo": "bar"},
            [{"op": "add", "path": "/baz", "value": "qux"}],
            {"foo": "bar", "baz": "qux"},
        ),
        (
            {"foo": ["bar", "baz"]},
            [{"op": "add", "path": "/foo/1", "value": "qux"}],
            {"foo": ["bar", "qux", "baz"]},
        ),
        (
            {"foo": ["bar"]},
            [{"op": "add", "path": "/foo/-", "value": ["x"]}],
            {"foo": ["bar", ["x"]]},
        ),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        (
            {"a": {"b": 1}, "c": {}},
            [{"op": "move", "from": "/a/b", "path": "/c/d"}],
            {"a": {}, "c": {"d": 1}},
        ),
        (
            {"a/b": 1, "m~n": 2},
            [
                {"op": "replace", "path": "/a~1b", "value": 3},
                {"op": "test", "path": "/m~0n", "value": 2},
            ],
            {"a/b": 3, "m~n": 2},
        ),
        ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
    ],
)
def test_a_json_patch_follows_the_rfc(target: Any, steps: Any, wanted: Any) -> None:
    assert json_patch(target, steps) == wanted


@pytest.mark.parametrize(
    "steps",
    [
        {"op": "add"},
        [{"op": "add"}],
        [{"op": "remove", "path": "/none"}],
        [{"op": "replace", "path": "/none", "value": 1}],
        [{"op": "add", "path": "/list/9", "value": 1}],
        [{"op": "add", "path": "no-slash", "value": 1}],
        [{"op": "test", "path": "/a", "value": 2}],
        [{"op": "sing", "path": "/a"}],
    ],
)
def test_a_json_patch_that_does_not_apply_is_an_error(steps: Any) -> None:
    with pytest.raises(PatchError):
        json_patch({"a": 1, "list": []}, steps)


def test_keyed_lists_merge_and_directives_are_obeyed() -> None:
    old = {
        "containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}],
        "tolerations": [{"key": "x"}],
        "finalizers": ["f", "g"],
    }
    patched = strategic_merge(old, {"containers": [{"name": "b", "image": "2"}]})
    assert patched["containers"] == [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]
    gone = strategic_merge(old, {"containers": [{"name": "a", "$patch": "delete"}]})
    assert gone["containers"] == [{"name": "b", "image": "1"}]
    ordered = strategic_merge(
        old,
        {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
            "containers": [{"name": "b", "image": "2"}],
        },
    )
    assert [item["name"] for item in ordered["containers"]] == ["b", "a"]
    assert strategic_merge(old, {"tolerations": [{"key": "y"}]})["tolerations"] == [{"key": "y"}]
    assert strategic_merge(old, {"$deleteFromPrimitiveList/finalizers": ["f"]})["finalizers"] == [
        "g"
    ]
    assert strategic_merge(old, {"finalizers": ["h"]})["finalizers"] == ["f", "g", "h"]
    replaced = strategic_merge({"a": {"x": 1, "y": 2}}, {"a": {"$patch": "replace", "z": 3}})
    assert replaced == {"a": {"z": 3}}
    assert strategic_merge({"a": {"x": 1, "y": 2}}, {"a": {"$retainKeys": ["x"], "x": 5}}) == {
        "a": {"x": 5}
    }


def _pod(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", **spec.pop("container", {})}], **spec},
    }


@pytest.mark.parametrize(
    ("pod", "field", "text"),
    [
        (
            _pod(container={"resources": {"requests": {"cpu": "-1"}}}),
            "spec.containers[0].resources.requests[cpu]",
            "must be greater than or equal to 0",
        ),
        (
            _pod(container={"resources": {"limits": {"x.y/gpu": "500m"}}}),
            "spec.containers[0].resources.limits[x.y/gpu]",
            "must be an integer",
        ),
        (
            _pod(container={"resources": {"requests": {"x.y/gpu": "1"}}}),
            "spec.containers[0].resources.limits",
            "Limit must be set for non overcommitable resources",
        ),
        (
            _pod(container={"resources": {"limits": {"gpu": "1"}}}),
            "spec.containers[0].resources.limits[gpu]",
            "must be a standard resource type or fully qualified",
        ),
        (_pod(container={"name": "Bad"}), "spec.containers[0].name", "RFC 1123 label"),
        (
            _pod(restartPolicy="Sometimes"),
            "spec.restartPolicy",
            'supported values: "Always", "OnFailure", "Never"',
        ),
        (
            _pod(initContainers=[{"name": "c", "image": "i"}]),
            "spec.initContainers[0].name",
            'Duplicate value: "c"',
        ),
        (
            {"metadata": {"name": "p", "labels": {"-": "x"}}, "spec": _pod()["spec"]},
            "metadata.labels",
            "name part must consist of",
        ),
        (
            {"metadata": {"name": "p", "labels": {"a": "x" * 64}}, "spec": _pod()["spec"]},
            "metadata.labels",
            "must be no more than 63 bytes",
        ),
    ],
)
def test_an_invalid_pod_is_refused_with_the_name_of_its_field(
    pod: dict[str, Any], field: str, text: str
) -> None:
    refused = ClusterStore().create("pods", pod, "default")
    assert isinstance(refused, Refusal)
    assert refused.code == 422
    assert any(
        cause["field"] == field and text in cause["message"]
        for cause in refused.body["details"]["causes"]
    ), refused.body


@pytest.mark.parametrize(
    ("resources", "wanted"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"x.y/gpu": "1"}}, "BestEffort"),
    ],
)
def test_qos_class(resources: dict[str, Any], wanted: str) -> None:
    assert (
        pods.with_defaults(_pod(container={"resources": resources}), "T")["status"]["qosClass"]
        == wanted
    )


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (601, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (11000, "3h3m"),
        (29000, "8h"),
        (172000, "47h"),
        (172800, "2d"),
        (176400, "2d1h"),
        (691200, "8d"),
        (63072000, "2y"),
        (70000000, "2y80d"),
    ],
)
def test_ages_are_printed_as_kubectl_does(seconds: int, wanted: str) -> None:
    created = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert tables.age(created, NOW) == wanted


def _status_cell(status: dict[str, Any], **metadata: Any) -> tuple[str, str]:
    obj = {"metadata": {"name": "p", **metadata}, "spec": {"containers": [{}]}, "status": status}
    cells = tables.row(kinds.PODS, Entry(("", "p"), obj, 1), NOW, "None")["cells"]
    return cells[1], cells[2]


@pytest.mark.parametrize(
    ("status", "metadata", "wanted"),
    [
        ({"phase": "Pending"}, {}, ("0/1", "Pending")),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
                ],
            },
            {},
            ("0/1", "SchedulingGated"),
        ),
        (
            {
                "phase": "Pending",
                "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}],
            },
            {},
            ("0/1", "ContainerCreating"),
        ),
        (
            {"phase": "Running", "containerStatuses": [{"ready": True, "state": {"running": {}}}]},
            {},
            ("1/1", "Running"),
        ),
        (
            {"phase": "Running", "containerStatuses": [{"ready": True, "state": {"running": {}}}]},
            {"deletionTimestamp": "x"},
            ("1/1", "Terminating"),
        ),
        (
            {"phase": "Failed", "reason": "TopologyAffinityError"},
            {},
            ("0/1", "TopologyAffinityError"),
        ),
        (
            {
                "phase": "Succeeded",
                "containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}],
            },
            {},
            ("0/1", "Completed"),
        ),
        (
            {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]},
            {},
            ("0/1", "ExitCode:3"),
        ),
    ],
)
def test_the_status_column(
    status: dict[str, Any], metadata: dict[str, Any], wanted: tuple[str, str]
) -> None:
    assert _status_cell(status, **metadata) == wanted


LABELS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2", "x"]))


@given(LABELS)
def test_label_selectors_in_text_and_object_form_agree(labels: dict[str, str]) -> None:
    text = parse_labels("a in (1,2),b notin (x),!c")
    assert not isinstance(text, Refusal)
    terms = [
        {"key": "a", "operator": "In", "values": ["1", "2"]},
        {"key": "b", "operator": "NotIn", "values": ["x"]},
        {"key": "c", "operator": "DoesNotExist"},
    ]
    plain = labels.get("a") in ("1", "2") and labels.get("b") != "x" and "c" not in labels
    assert all(test(labels) for test in text) is plain
    assert from_label_selector({"matchExpressions": terms})(labels) is plain


ONE_INIT_AFTER_ANOTHER: list[Any] = [
    {"name": "i0", "resources": {"requests": {"cpu": "2"}}},
    {"name": "i1", "resources": {"requests": {"cpu": "500m"}}, "restartPolicy": "Always"},
    {"name": "i2", "resources": {"requests": {"cpu": "1"}}},
]
PAGES = {"limits": {"hugepages-2Mi": "4Mi", "cpu": "500m", "memory": "100Mi"}}


@pytest.mark.parametrize(
    ("given", "containers", "inits", "limits", "requests", "qos"),
    [
        (
            {"limits": {"cpu": "2"}},
            [
                {"requests": {"cpu": "100m", "memory": "512Mi"}},
                {"limits": {"cpu": ".5", "memory": "1Gi"}},
            ],
            [],
            {"cpu": "2"},
            {"cpu": "600m", "memory": "1536Mi"},
            "Burstable",
        ),
        (
            {"limits": {"cpu": "2", "memory": "2Gi"}},
            [{}],
            [],
            {"cpu": "2", "memory": "2Gi"},
            {"cpu": "2", "memory": "2Gi"},
            "Guaranteed",
        ),
        (
            {"limits": {"cpu": "2", "memory": "2Gi"}, "requests": {"cpu": "1"}},
            [{}],
            [],
            {"cpu": "2", "memory": "2Gi"},
            {"cpu": "1", "memory": "2Gi"},
            "Burstable",
        ),
        (
            {"requests": {"cpu": "1"}},
            [{"limits": {"cpu": "1", "memory": "1Gi"}}],
            [],
            None,
            {"cpu": "1"},
            "Burstable",
        ),
        (
            {"limits": {"memory": "1Gi"}},
            [PAGES, PAGES],
            [],
            {"hugepages-2Mi": "8Mi", "memory": "1Gi"},
            {"cpu": "1", "hugepages-2Mi": "8Mi", "memory": "200Mi"},
            "Burstable",
        ),
        (
            {"limits": {"cpu": "4", "memory": "4Gi"}},
            [{"requests": {"cpu": "1"}}],
            ONE_INIT_AFTER_ANOTHER,
            {"cpu": "4", "memory": "4Gi"},
            {"cpu": "2", "memory": "4Gi"},
            "Burstable",
        ),
    ],
)
def test_the_resources_of_a_whole_pod_are_completed_from_its_containers(
    given: Any, containers: list[Any], inits: list[Any], limits: Any, requests: Any, qos: str
) -> None:
    """As kube-apiserver 1.36.2 answered."""
    made = [{"name": f"c{index}", "resources": each} for index, each in enumerate(containers)]
    stored = pods.with_defaults(
        {"metadata": {}, "spec": {"resources": given, "containers": made, "initContainers": inits}},
        "T",
    )
    resources = stored["spec"]["resources"]
    assert (resources.get("limits"), resources["requests"], stored["status"]["qosClass"]) == (
        limits,
        requests,
        qos,
    )


def test_label_keys_become_requirements_with_the_pods_own_values() -> None:
    """As kube-apiserver 1.36.2 answered; a rule without a selector, and keys that the pod lacks,
    stay as they are.
    """
    selector = {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}
    rule = {"topologyKey": "zone", "labelSelector": selector, "matchLabelKeys": ["rev", "none"]}
    apart = {"topologyKey": "zone", "labelSelector": {}, "mismatchLabelKeys": ["rev"]}
    spec = _pod(
        topologySpreadConstraints=[rule, {"topologyKey": "zone", "matchLabelKeys": ["rev"]}],
        affinity={"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": apart}]}},
    )["spec"]
    stored = pods.with_defaults({"metadata": {"labels": {"rev": "r1"}}, "spec": spec}, "T")["spec"]
    mine = {"key": "rev", "operator": "In", "values": ["r1"]}
    spread, without = stored["topologySpreadConstraints"]
    assert spread["labelSelector"] == {"matchExpressions": [*selector["matchExpressions"], mine]}
    assert "labelSelector" not in without
    term = stored["affinity"]["podAntiAffinity"][PREFERRED][0]["podAffinityTerm"]
    assert term["labelSelector"] == {"matchExpressions": [{**mine, "operator": "NotIn"}]}


def test_amounts_are_no_smaller_than_a_thousandth() -> None:
    """As kube-apiserver 1.36.2 answered."""
    stored = pods.with_defaults(
        _pod(container={"resources": {"requests": {"cpu": "0.1234567", "memory": "1n"}}}), "T"
    )
    assert stored["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "124m",
        "memory": "1m",
    }


def refused_pods() -> list[Any]:
    """Specs next to a container `c`, and the reason for which kube-apiserver 1.36.2 rejected
    them.
    """
    recorded: list[Any] = json.loads(
        gzip.decompress((RECORDED / "refused_pods.json.gz").read_bytes())
    )
    return recorded


@pytest.mark.parametrize(
    ("said", "causes"),
    refused_pods(),
    ids=lambda value: "" if isinstance(value, list) else next(iter(value)),
)
def test_an_invalid_placement_rule_is_refused_as_by_the_real_server(
    said: dict[str, Any], causes: list[list[str]]
) -> None:
    refused = ClusterStore().create("pods", _pod(**copy.deepcopy(said)), "default")
    assert isinstance(refused, Refusal)
    assert [
        [each["field"], each["message"]] for each in refused.body["details"]["causes"]
    ] == causes
