"""What an event is about: a pod, a node, both, or neither.

Each event class says so itself, so that no reader guesses by field names. The classes below do that
for events with the usual fields.
"""

from __future__ import annotations

from typing import NamedTuple


class About(NamedTuple):
    """`pod` is a uid and `node` a name, each "" if the event is about none."""

    pod: str = ""
    node: str = ""


class AboutNothing:
    __slots__ = ()

    @property
    def about(self) -> About:
        return About()


class AboutNode:
    __slots__ = ()
    node: str

    @property
    def about(self) -> About:
        return About(node=self.node)


class AboutPod:
    __slots__ = ()
    uid: str

    @property
    def about(self) -> About:
        return About(pod=self.uid)


class AboutPodOnNode:
    __slots__ = ()
    uid: str
    node: str

    @property
    def about(self) -> About:
        return About(self.uid, self.node)
