"""Shards: which of several schedulers decides a pod, and which nodes each of them tries first.

A key goes to a member by rendezvous hash. Members that learn of each other late decide a pod twice
for a moment; the versions of its stream let one of them win. Pure.
"""

from __future__ import annotations

import msgspec

from shared.domain.cells import highest

MARK = "/"


class Shard(msgspec.Struct, frozen=True):
    """`members` by their roles (`scheduler/topolog/0`), sorted; `own` is one of them. Without other
    members every key is in the shard.
    """

    members: tuple[str, ...] = ()
    own: str = ""

    @property
    def alone(self) -> bool:
        """There is no other member."""
        return len(self.members) < 2

    @property
    def leads(self) -> bool:
        """This member does what one of them must do for all."""
        return self.alone or self.members[0] == self.own

    def has(self, key: str) -> bool:
        """Return whether the pod (by uid) or node (by name) is in this member's shard."""
        return self.alone or highest(self.members, key) == self.own

    def mark(self) -> str:
        """Return the members' places (`/0,2`) for a decision's provenance; "" without others."""
        if self.alone:
            return ""
        return MARK + ",".join(member.rpartition("/")[2] for member in self.members)


def shard_of(config: str, role: str) -> Shard:
    """Return the shard under which a decision was made, from its provenance's configuration and the
    role that appended it.
    """
    places = config.partition(MARK)[2]
    if not places:
        return Shard()
    shared_role = role.rpartition("/")[0]
    return Shard(tuple(f"{shared_role}/{place}" for place in places.split(",")), role)
