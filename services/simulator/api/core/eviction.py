"""The eviction subresource and PodDisruptionBudgets: may this pod be disturbed now. Must not know
HTTP.

Source: recordings D of kube-apiserver 1.36, KEP-85 and pkg/registry/core/pod/storage/eviction.go.
The budget's status, on a real cluster the disruption controller's work, is computed here.
"""

from __future__ import annotations

import math
from typing import Any

from services.simulator.api.core import schema
from services.simulator.api.core.binding import with_condition
from services.simulator.api.core.kinds import PODS
from services.simulator.api.core.refusals import Refusal, bad_request, not_found, refuse
from services.simulator.api.core.removal import DeleteOptions, delete, unmet_precondition
from services.simulator.api.core.selectors import from_label_selector
from services.simulator.api.core.store import Entry, Store
from services.simulator.api.core.writes import Moment, namespace_ends

Json = dict[str, Any]

_TWO_BUDGETS = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource "
    "does not support."
)
_BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."


def evict(
    store: Store, namespace: str, name: str, body: Any, options: DeleteOptions, moment: Moment
) -> Entry | Refusal:
    """Delete a pod unless a budget forbids it. For a terminating pod answer success and do
    nothing.
    """
    wrong = schema.mistyped("Eviction", body) if isinstance(body, dict) else "it is no JSON object"
    if wrong:
        return bad_request(f'Eviction in version "v1" cannot be handled as a Eviction: {wrong}')
    given = (body.get("metadata") or {}).get("name")
    if given not in (None, "", name):
        return bad_request(f"name in URL does not match name in Eviction object: {given}")
    if ends := namespace_ends(store, PODS, namespace, name):
        return ends
    pod = store.get("pods", namespace, name)
    if pod is None:
        return not_found(PODS, name)
    if unmet := unmet_precondition(PODS, pod, options):
        return unmet
    if pod.obj["metadata"].get("deletionTimestamp"):
        return pod
    if blocked := _blocked(store, pod, moment.stamp):
        return blocked
    if options.dry_run:
        return pod
    if pod.obj["spec"].get("nodeName"):
        status = with_condition(pod.obj["status"], _DISRUPTED, moment.stamp)
        store.put("pods", pod.key, {**pod.obj, "status": status})
    deleted = delete(store, PODS, namespace, name, DeleteOptions(options.grace_s), moment)
    return deleted if isinstance(deleted, Refusal) else deleted.entry


_DISRUPTED: Json = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def _blocked(store: Store, pod: Entry, stamp: str) -> Refusal | None:
    budgets = [
        entry for entry in store.entries("poddisruptionbudgets", pod.key[0]) if _covers(entry, pod)
    ]
    if len(budgets) > 1:
        return refuse(500, _TWO_BUDGETS)
    if not budgets or pod.obj["status"].get("phase") in ("Succeeded", "Failed", "Pending"):
        return None
    status = budget_status(store, budgets[0], stamp)
    if status["disruptionsAllowed"] > 0 or _unguarded(budgets[0], status, pod):
        return None
    text = (
        f"The disruption budget {budgets[0].name} needs {status['desiredHealthy']} "
        "healthy pods and has "
        f"{status['currentHealthy']} currently"
    )
    cause = {"reason": "DisruptionBudget", "message": text}
    return refuse(429, _BLOCKED, "TooManyRequests", {"causes": [cause]})


def _unguarded(budget: Entry, status: Json, pod: Entry) -> bool:
    """Return whether the budget does not protect the pod: it is not ready, and enough others are
    ready, or the budget allows evictions of unready pods.
    """
    always = budget.obj["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    return not _healthy(pod) and (
        always or status["currentHealthy"] >= status["desiredHealthy"] > 0
    )


def _covers(budget: Entry, pod: Entry) -> bool:
    return from_label_selector(budget.obj["spec"].get("selector"))(pod.labels)


def budget_status(store: Store, budget: Entry, stamp: str) -> Json:
    """Return the status that the disruption controller would write for the current pods."""
    pods = [pod for pod in store.entries("pods", budget.key[0]) if _covers(budget, pod)]
    expected = [
        pod for pod in pods if pod.obj["status"].get("phase") not in ("Succeeded", "Failed")
    ]
    healthy = sum(1 for pod in expected if _healthy(pod))
    spec = budget.obj["spec"]
    if spec.get("maxUnavailable") is not None:
        desired = max(0, len(expected) - _scaled(spec["maxUnavailable"], len(expected)))
    else:
        desired = _scaled(spec.get("minAvailable", 1), len(expected))
    allowed = max(0, healthy - desired) if expected else 0
    generation = budget.obj["metadata"].get("generation", 1)
    condition: Json = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "observedGeneration": generation,
        "lastTransitionTime": _since(budget, allowed > 0, stamp),
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
    }
    return {
        "observedGeneration": generation,
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": len(expected),
        "conditions": [condition],
    }


def _since(budget: Entry, allowed: bool, stamp: str) -> str:
    """Return the transition time, which moves only when the condition changes."""
    for condition in budget.obj.get("status", {}).get("conditions") or []:
        if (condition.get("status") == "True") is allowed:
            return str(condition.get("lastTransitionTime") or stamp)
    return stamp


def _healthy(pod: Entry) -> bool:
    if pod.obj["metadata"].get("deletionTimestamp"):
        return False
    conditions = pod.obj["status"].get("conditions") or []
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _scaled(value: int | str, total: int) -> int:
    if isinstance(value, str):
        return math.ceil(int(value.rstrip("%")) * total / 100)
    return value


def refresh_budgets(store: Store, namespace: str, stamp: str) -> None:
    """Update the status of a namespace's budgets. Without a change there is no new version."""
    for budget in store.entries("poddisruptionbudgets", namespace):
        status = budget_status(store, budget, stamp)
        if status != budget.obj.get("status"):
            store.put("poddisruptionbudgets", budget.key, {**budget.obj, "status": status})
