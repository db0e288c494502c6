"""Evictions for nominated pods, and of gangs that are rolled back: the work list, folded from the
log, and the outcome of each answer.

A nomination or roll-back names its victims. Each eviction is rehearsed (dry run), intended, called,
and gets an outcome. Evictions without intent are called off with their nomination, and with the
first victim that may not be evicted. An intent always gets an outcome. This module must not know
HTTP, the log or a clock.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Literal

import msgspec

from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import scheduling_events as scheduling
from shared.events.catalog import Event


class Eviction(msgspec.Struct):
    """One eviction for a nominated pod, or of a gang: its `preemptor`. `called_off`: it is
    intended, but the nomination has ended."""

    uid: str
    preemptor: str
    intended: bool = False
    called_off: bool = False


Evictions = dict[str, Eviction]


def evolve(evictions: Evictions, event: Event, live: Container[str]) -> None:
    """Fold one event in place. Victims that are not `live` need no eviction."""
    if isinstance(event, scheduling.PodNominated):
        _call_off(evictions, event.uid)
        for victim in event.victims:
            if victim in live:
                _ask(evictions, victim, event.uid)
    elif isinstance(event, scheduling.GangRolledBack):
        for victim in event.uids:
            if victim in live:
                _ask(evictions, victim, event.preemptor)
    elif isinstance(
        event,
        scheduling.NominationWithdrawn
        | scheduling.PodReserved
        | scheduling.BookingEnded
        | cluster.PodEnded,
    ):
        _call_off(evictions, event.uid)
    elif isinstance(event, cluster.PodObserved) and event.node:
        _call_off(evictions, event.pod.uid)
    elif isinstance(event, binding.EvictIntended):
        evictions.setdefault(event.uid, Eviction(event.uid, event.preemptor)).intended = True
    elif isinstance(event, binding.PodEvicted):
        evictions.pop(event.uid, None)
    elif isinstance(event, binding.EvictRefused):
        evictions.pop(event.uid, None)
        _call_off(evictions, event.preemptor)


def _ask(evictions: Evictions, victim: str, preemptor: str) -> None:
    eviction = evictions.setdefault(victim, Eviction(victim, preemptor))
    eviction.preemptor, eviction.called_off = preemptor, False


def _call_off(evictions: Evictions, preemptor: str) -> None:
    for uid, eviction in list(evictions.items()):
        if eviction.preemptor != preemptor:
            continue
        if eviction.intended:
            eviction.called_off = True
        else:
            del evictions[uid]


def rehearsals(evictions: Evictions) -> dict[str, list[Eviction]]:
    """Return the evictions without intent by preemptor. All of a preemptor must be allowed before
    the first victim is evicted."""
    by_preemptor: dict[str, list[Eviction]] = {}
    for eviction in evictions.values():
        if not eviction.intended:
            by_preemptor.setdefault(eviction.preemptor, []).append(eviction)
    return by_preemptor


def guarded(status: int, message: str) -> bool:
    """Return whether a PodDisruptionBudget refuses. Before the first eviction the binder does not
    wait for it, because other victims may do."""
    return status == 429 and "disruption budget" in message


Again = Literal["again"]
# A part of the API server's message if a right is missing (kube-apiserver 1.36).
NO_RIGHT = "cannot create resource"


def judge(
    eviction: Eviction, status: int, message: str, attempts: int, limit: int
) -> binding.PodEvicted | binding.EvictRefused | Again:
    """Return the outcome of an answer; `status` is 0 if none came. A 409 means that the uid is
    another, so the victim has ended. After a lost answer the call is repeated for ever, because the
    answer may have been a success."""
    if 200 <= status < 300 or status in (404, 409):
        return binding.PodEvicted(eviction.uid, eviction.preemptor)
    if status == 0 or (_may_pass(status, message) and attempts < limit):
        return "again"
    return binding.EvictRefused(eviction.uid, eviction.preemptor, message)


def _may_pass(status: int, message: str) -> bool:
    """Return whether a refusal may pass: a PodDisruptionBudget (429), a server in trouble, or one
    that has just started and misses existing tokens and rights."""
    return status in (401, 429) or status >= 500 or (status == 403 and NO_RIGHT in message)
