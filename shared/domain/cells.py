"""Cells: which of several logs, each with its own services, a node or a pending pod belongs to.

1. Every cell has the same list of cells (`TOPOLOG_CELLS`) and its own name (`TOPOLOG_CELL`).
2. A node is wanted by one cell: by its label `topolog.io/cell`, else by the first cell with
   `nodes` that match its labels, else by hash among the cells without `nodes`.
3. A cell places pods only on nodes that carry its name in `topolog.io/cell-owner`. The cell that
   wants a node adds that label if no cell has, and only the owner removes it, after its log has
   recorded that the node left. So a node has one owner, whatever the settings of each cell say.
4. A pending pod goes to the cell that it names, else to the first cell with `pods` that match its
   labels, else to a cell if it selects its nodes, else by hash of its gang or its uid among the
   cells without `pods`. A pod that fits no cell waits in the first one, which says why.
5. The hash puts these cells into a ring. A cell that cannot place such a pod lets it go in its own
   log first, and then writes how many cells have let it go (`topolog.io/cell-hops`).
6. A bound pod belongs to the cell of its node.

Pure. Must not know the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
import xxhash

from shared.domain.fields import part
from shared.domain.gang import gang_of

WANTED = "topolog.io/cell"
OWNER = "topolog.io/cell-owner"
HOPS = "topolog.io/cell-hops"
MOST_HOPS = 1_000_000
# Seconds that a pod without a node waits in a cell before the next cell gets it.
WAIT_S = 300.0
# The wait doubles with each round of all cells, so often at most.
_MOST_DOUBLINGS = 20


class Cell(msgspec.Struct, frozen=True):
    """A cell, and labels of its nodes and pods; without labels it takes a share by hash."""

    name: str
    nodes: dict[str, str] = {}
    pods: dict[str, str] = {}


class Route(NamedTuple):
    """The cell of a pending pod, and the `problem` of a pod that fits none. A pod that goes by hash
    visits the cells of `ring` in this order, and has made so many `hops`."""

    cell: str
    problem: str = ""
    ring: tuple[str, ...] = ()
    hops: int = 0

    @property
    def next_cell(self) -> str:
        return self.ring[(self.hops + 1) % len(self.ring)]


class Cells(msgspec.Struct, frozen=True):
    """All cells, and the name of this one. A pod that goes by hash waits `wait_s` in a cell, 0 for
    ever."""

    own: str
    all: tuple[Cell, ...]
    wait_s: float = WAIT_S

    def of_node(self, name: str, labels: Mapping[str, str]) -> str:
        """Return the cell that wants a node, "" for none."""
        if WANTED in labels:
            return labels[WANTED]
        for cell in self.all:
            if cell.nodes and _within(cell.nodes, labels):
                return cell.name
        return highest((cell.name for cell in self.all if not cell.nodes), name)

    def has_node(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether this cell may place pods on a node: it owns and wants it."""
        return labels.get(OWNER) == self.own == self.of_node(name, labels)

    def route(self, manifest: Mapping[str, Any]) -> Route:
        """Return the cell of a pending pod."""
        metadata, spec = part(manifest, "metadata"), part(manifest, "spec")
        labels, selector = part(metadata, "labels"), part(spec, "nodeSelector")
        names = [cell.name for cell in self.all]
        named = labels.get(WANTED) or selector.get(WANTED)
        if named:
            problem = f"{WANTED} is {named!r}, and the cells are {', '.join(names)}"
            return Route(str(named)) if named in names else Route(names[0], problem)
        matching = [cell.name for cell in self.all if cell.pods and _within(cell.pods, labels)]
        matching += [cell.name for cell in self.all if cell.nodes and _within(cell.nodes, selector)]
        if matching:
            return Route(matching[0])
        namespace, annotations = str(metadata.get("namespace", "")), part(metadata, "annotations")
        gang = gang_of(namespace, labels, annotations)
        key = gang.name if gang is not None else str(metadata.get("uid", ""))
        if group := part(spec, "schedulingGroup").get("podGroupName"):
            key = f"{namespace}/{group}"
        ring = ring_of((cell.name for cell in self.all if not cell.pods), key)
        if not ring:
            return Route(names[0], "no cell takes pods with these labels")
        hops = _hops(annotations.get(HOPS))
        return Route(ring[hops % len(ring)], "", ring, hops)

    def wait_in(self, route: Route) -> float:
        """Return the seconds that a pod waits in the cell of its route. They double with each
        round, so that the pods of a full cluster move ever more seldom."""
        rounds = route.hops // max(len(route.ring), 1)
        return float(self.wait_s * 2 ** min(rounds, _MOST_DOUBLINGS))


def cells_of(own: str, cells: tuple[Cell, ...], wait_s: float = WAIT_S) -> Cells | str | None:
    """Return the cells that settings name, None without any, or the problem with them."""
    names = [cell.name for cell in cells]
    if not own and not names:
        return None
    if own not in names:
        return f"TOPOLOG_CELL is {own!r}, and TOPOLOG_CELLS names {', '.join(names) or 'no cell'}"
    if len({*names}) < len(names) or not all(names):
        return "TOPOLOG_CELLS: give each cell a name of its own"
    return Cells(own, cells, wait_s)


def highest(members: Iterable[str], key: str) -> str:
    """Return the member with the highest hash with the key, "" without members (rendezvous
    hashing, Thaler and Ravishankar, 1998): a member that comes or goes moves only its own keys.
    """
    return next(iter(ring_of(members, key)), "")


def ring_of(members: Iterable[str], key: str) -> tuple[str, ...]:
    """Return the members by falling hash with the key."""
    return tuple(sorted(members, key=lambda member: (_weight(member, key), member), reverse=True))


def _hops(text: object) -> int:
    """Return the hops that an annotation names; 0 for anything else than a plain number."""
    is_number = isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 8
    return min(int(str(text)), MOST_HOPS) if is_number else 0


def _weight(member: str, key: str) -> int:
    return xxhash.xxh3_64_intdigest(f"{member}\0{key}".encode())


def _within(wanted: Mapping[str, str], labels: Mapping[str, Any]) -> bool:
    return wanted.items() <= labels.items()
