"""Who of several schedulers decides which pod, and which nodes each of them tries first.

Rendezvous hashing (Thaler and Ravishankar, 1998): each key goes to the member whose hash with it is
the highest, so that a member that comes or goes moves only the keys that it takes or leaves.
Members that see each other late decide a pod twice for a moment; the versions of its stream let one
of them win. Pure.
"""

from __future__ import annotations

import msgspec
import xxhash

MARK = "/"


class Shard(msgspec.Struct, frozen=True):
    """`members` by their roles (`scheduler/topolog/0`), sorted; `own` is one of them. Without
    others everything is one's own.
    """

    members: tuple[str, ...] = ()
    own: str = ""

    @property
    def alone(self) -> bool:
        """True where there is nothing to share out."""
        return len(self.members) < 2

    def has(self, key: str) -> bool:
        """Whether this member is to see to the pod (by uid) or node (by name)."""
        return (
            self.alone
            or max(self.members, key=lambda member: (_weight(member, key), member)) == self.own
        )

    def mark(self) -> str:
        """What a decision's provenance says of it: `/0,2`, the members' places; nothing where there
        is one.
        """
        return (
            ""
            if self.alone
            else MARK + ",".join(member.rpartition("/")[2] for member in self.members)
        )


def shard_of(config: str, role: str) -> Shard:
    """The share under which a decision was made, from what it names as its configuration and the
    role that appended it.
    """
    places = config.partition(MARK)[2]
    if not places:
        return Shard()
    shared = role.rpartition("/")[0]
    return Shard(tuple(f"{shared}/{place}" for place in places.split(",")), role)


def _weight(member: str, key: str) -> int:
    return xxhash.xxh3_64_intdigest(f"{member}\0{key}".encode())
