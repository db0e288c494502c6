"""Disruption budgets by the API, and pods that no controller creates again after an eviction."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from services.replay.defragmenting import Budget
from services.scheduler.filter.constraints.selectors import Selection
from shared.domain.fields import RefusedError
from shared.domain.requirements import requirements
from shared.kube.client import KubeClient
from shared.kube.port import KubeUnavailableError
from shared.ledger.state import LedgerPod


class Disruptions(msgspec.Struct, frozen=True):
    """`problem` says why the API was not asked; then nothing is known about budgets and owners."""

    budgets: tuple[Budget, ...] = ()
    spared: frozenset[str] = frozenset()
    problem: str = ""


async def disruptions(kubeconfig: str, pods: Mapping[str, LedgerPod]) -> Disruptions:
    """Return the budgets of these pods, and the uids of those without a controller. Without a
    kubeconfig this pod's service account asks."""
    if not kubeconfig and "KUBERNETES_SERVICE_HOST" not in os.environ:
        return Disruptions(problem="no kubeconfig")
    try:
        kube = KubeClient(kubeconfig)
    except KubeUnavailableError as error:
        return Disruptions(problem=str(error))
    try:
        budgets = (await kube.list("poddisruptionbudgets")).items
        objects = (await kube.list("pods")).items
    except KubeUnavailableError as error:
        return Disruptions(problem=str(error))
    finally:
        await kube.close()
    return Disruptions(tuple(read_budgets(budgets, pods)), unowned(objects))


def read_budgets(
    objects: Iterable[dict[str, Any]], pods: Mapping[str, LedgerPod]
) -> Iterable[Budget]:
    """Yield each budget with the pods that it covers. A budget that cannot be read allows none in
    its namespace.
    """
    for budget in objects:
        metadata, spec = budget.get("metadata") or {}, budget.get("spec") or {}
        if spec.get("selector") is None:  # It covers no pod.
            continue
        namespace, name = str(metadata.get("namespace", "")), str(metadata.get("name", ""))
        allowed = (budget.get("status") or {}).get("disruptionsAllowed", 0)
        try:
            labels = requirements(spec, "selector", "spec")
            kept = {"namespaces": [namespace], "labels": labels}
            selection = msgspec.convert(kept, Selection)
        except (RefusedError, msgspec.ValidationError):
            selection, allowed = Selection((namespace,)), 0
        covered = frozenset(uid for uid, entry in pods.items() if selection.matches(entry.pod))
        yield Budget(f"{namespace}/{name}", covered, allowed if isinstance(allowed, int) else 0)


def unowned(objects: Iterable[dict[str, Any]]) -> frozenset[str]:
    """Return the uids of pods without a controller: once evicted, such a pod is gone."""
    return frozenset(
        str((pod.get("metadata") or {}).get("uid", ""))
        for pod in objects
        if not any(
            owner.get("controller")
            for owner in (pod.get("metadata") or {}).get("ownerReferences") or ()
        )
    )
