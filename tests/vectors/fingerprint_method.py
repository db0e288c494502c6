"""The `method` cases of the fingerprint vectors: how the plugin reads an object and which pods of a
node it counts.
"""

from __future__ import annotations

from typing import Any, get_args

from plugins.upstream_compat.exclusive import is_exclusive
from plugins.upstream_compat.fingerprint import ResyncMethod, computed, expectation, is_relevant
from plugins.upstream_compat.nrt import parse_nrt
from plugins.upstream_compat.pod import parse_pod, qos_class
from shared.kubelet.fingerprint import check


def check_method(case: dict[str, Any]) -> list[str]:
    """Differences from what the plugin computed."""
    got = _observed(case)
    want = case["expect"]
    return [
        f"{name}: expected {want[name]}, got {each}"
        for name, each in got.items()
        if each != want[name]
    ]


def _observed(case: dict[str, Any]) -> dict[str, Any]:
    nrt, pods = parse_nrt(case["nrt"]), [parse_pod(raw) for raw in case["pods"]]
    names = nrt.resource_names
    counted = [
        pod
        for pod in pods
        if is_relevant(pod, case["informer_mode"]) and pod.node_name == case["node"]
    ]
    methods: dict[str, dict[str, Any]] = {}
    for method in get_args(ResyncMethod):
        expected = expectation(nrt, method)
        computed_value = computed(counted, expected.only_exclusive, names)
        methods[method] = {
            "expected_in_nrt": expected.fingerprint,
            "only_exclusive_resources": expected.only_exclusive,
        }
        if expected.fingerprint:
            methods[method] |= {
                "check": check(expected.fingerprint, computed_value),
                "computed": computed_value,
            }
    return {
        "fingerprint_all": computed(counted, False, names),
        "fingerprint_exclusive": computed(counted, True, names),
        "node_known": bool(counted),
        "per_resync_method": methods,
        "pods": [
            {
                "exclusive": is_exclusive(pod, names if pod.node_name == case["node"] else ()),
                "name": pod.key,
                "qos": qos_class(pod),
                "relevant": is_relevant(pod, case["informer_mode"]),
            }
            for pod in pods
        ],
    }
