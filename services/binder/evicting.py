"""Evictions for nominees: the work list folded from the log, and the judgement of answers.

A nomination asks for its victims; each is rehearsed, intended, called, and has an outcome. What is
asked and not intended is called off with its nomination, and with the first victim that may not go;
an intent gets an outcome whatever happened. This module must not know HTTP, the log or a clock.
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
    """One eviction to carry out for a nominee. `called_off`: it is intended, but the nomination has
    ended since.
    """

    uid: str
    preemptor: str
    intended: bool = False
    called_off: bool = False


Evictions = dict[str, Eviction]


def evolve(evictions: Evictions, event: Event, live: Container[str]) -> None:
    """Fold one fact in place. Victims that are not `live` (any more) need no eviction."""
    if isinstance(event, scheduling.PodNominated):
        _call_off(evictions, event.uid)
        for victim in event.victims:
            if victim in live:
                _ask(evictions, victim, event.uid)
    elif isinstance(
        event, scheduling.NominationWithdrawn | scheduling.PodReserved | cluster.PodEnded
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
    known = evictions.setdefault(victim, Eviction(victim, preemptor))
    known.preemptor, known.called_off = preemptor, False


def _call_off(evictions: Evictions, preemptor: str) -> None:
    for uid in [uid for uid, each in evictions.items() if each.preemptor == preemptor]:
        if evictions[uid].intended:
            evictions[uid].called_off = True
        else:
            del evictions[uid]


def rehearsals(evictions: Evictions) -> dict[str, list[Eviction]]:
    """Preemptor -> its victims, where nothing is intended yet: all of them must be allowed before
    the first is evicted.
    """
    found: dict[str, list[Eviction]] = {}
    for each in evictions.values():
        if not each.intended:
            found.setdefault(each.preemptor, []).append(each)
    return found


def guarded(status: int, message: str) -> bool:
    """A budget says no. While nothing is evicted yet there is no point in waiting for it: other
    victims may do.
    """
    return status == 429 and "disruption budget" in message


Again = Literal["again"]
NO_RIGHT = "cannot create resource"
"""Of the API server's words, where the asker lacks a right (kube-apiserver 1.36)."""


def judge(
    eviction: Eviction, status: int, message: str, attempts: int, limit: int
) -> binding.PodEvicted | binding.EvictRefused | Again:
    """What an answer means; `status` 0 when none came. 409 says that the uid is another, so that
    the victim is gone. A lost answer is asked for again for ever: it may have been a yes."""
    if 200 <= status < 300 or status in (404, 409):
        return binding.PodEvicted(eviction.uid, eviction.preemptor)
    if status == 0 or (_may_pass(status, message) and attempts < limit):
        return "again"
    return binding.EvictRefused(eviction.uid, eviction.preemptor, message)


def _may_pass(status: int, message: str) -> bool:
    """The no of a budget (429), of a server in trouble, or of one that has just started and misses
    tokens and rights that are there."""
    return status in (401, 429) or status >= 500 or (status == 403 and NO_RIGHT in message)
