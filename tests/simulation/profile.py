"""The parameters of a run, drawn from its seed: nodes and their policies, the number of processes
of each service, and the probability of each action.

Each run switches some faults on and others off, so that some runs have one fault often and others
have many faults together.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from services.simulator.cluster import GPU, KUBELET, NodeShape, Policies, SimulatedNode, lay_out

GIB = 2**30
HUGEPAGE_BYTES = 2 * 2**20

WORK = {
    "create": 3.0,
    "delete": 1.0,
    "finish": 2.0,
    "clean": 1.0,
    "foreign": 1.0,
    "scan": 4.0,
    "deliver": 5.0,
    "take": 4.0,
    "fold": 9.0,
    "decide": 6.0,
    "list": 4.0,
    "tell": 6.0,
    "lead": 4.0,
    "intend": 4.0,
    "call": 4.0,
    "append": 10.0,
    "execute": 6.0,
    "answer": 7.0,
    "reach": 8.0,
    "wake": 3.0,
    "hear": 6.0,
    "begin": 5.0,
    "show": 3.0,
    "settle": 5.0,
    "post": 5.0,
    "gc": 3.0,
    "rejoin": 2.0,
    "heal": 0.5,
    "start": 3.0,
    "tick": 2.0,
}
FAULTS = {
    "drop": 1.5,
    "duplicate": 2.0,
    "append lost": 1.0,
    "append down": 1.0,
    "answer lost": 2.0,
    "execute late": 1.5,
    "busy": 1.0,
    "read lost": 1.0,
    "crash": 0.8,
    "takeover": 0.8,
    "cut": 1.0,
    "reach late": 0.5,
    "force": 0.4,
    "steal": 0.5,
    "restart": 0.5,
    "reboot": 0.25,
    "policy": 0.2,
    "lose device": 0.3,
    "remove node": 0.15,
    "expire": 0.5,
}


LATER_WORK = {"evict": 5.0, "renew": 1.0, "back up": 0.5, "read": 1.0}
LATER_FAULTS = {
    "lose state": 0.25,
    "vanish": 0.2,
    "list cut": 1.0,
    "list empty": 1.0,
    "clock jump": 0.3,
    "log clock jump": 0.3,
    "set back": 0.08,
    "restore": 0.08,
}

# Seeds from here on know faults, machines and pods that were added later; the worlds of earlier
# seeds stay what they were.
LATER = 30_000

CROWDED = 4
# In every fourth of the later worlds pods come faster than they go, so that some must make room for
# others.
CROWD = {"create": 4.0, "finish": 0.1, "delete": 0.2, "foreign": 0.2, "post": 2.0, "evict": 2.0}

CHECKED_WORK = {"check": 0.3}
NEWEST_FAULTS = {"list short": 1.0}

# Seeds from here on have themes: situations that are rare by themselves, each in every fourth
# world.
THEMED = 80_000

# Factors of frequencies: nothing; others that bind and kill; pods that take long to start, come and
# go on small machines that hardly change, and ask for most of a zone; nodes that go while binders
# are slow.
THEMES: tuple[dict[str, float], ...] = (
    {},
    {"foreign": 4.0, "steal": 4.0, "force": 4.0},
    {
        **dict.fromkeys([*FAULTS, *LATER_FAULTS], 0.05),
        "hear": 0.4,
        "begin": 0.6,
        "read": 0.1,
        "finish": 0.7,
        "deliver": 2.0,
        "create": 3.0,
        "tell": 3.0,
        "post": 3.0,
        "fold": 2.0,
        "foreign": 0.1,
        "delete": 0.1,
        "renew": 0.1,
        "back up": 0.1,
    },
    {"remove node": 10.0, "rejoin": 0.3, "intend": 0.2, "reboot": 4.0},
)
# Seeds whose worlds have the third theme.
TIGHT = 2

# Seeds from here on know lists that are cut short unnoticed, and a fifth theme.
NEWEST = 90_000

PAIRS = 4
# The fifth: pods of two containers that are long half admitted, reported meanwhile, and return
# under names that others had.
NEWEST_THEMES = (
    *THEMES,
    {
        **dict.fromkeys([*FAULTS, *LATER_FAULTS], 0.05),
        **dict.fromkeys(("append", "deliver", "fold", "reach", "create", "tell", "post"), 3.0),
        **dict.fromkeys(("intend", "call", "execute", "answer"), 3.0),
        "begin": 2.0,
        "settle": 0.5,
        "scan": 0.4,
        "force": 1.0,
        "finish": 2.0,
        "delete": 0.05,
        "foreign": 0.1,
        "tick": 0.1,
        "read": 0.3,
        "renew": 0.1,
        "back up": 0.1,
    },
)

# How often in these worlds a pod goes while a list is in doubt, where pods are deleted at all. It
# is not drawn: worlds in which no list is doubted stay what they were.
UNSEEN = 6.0

# Seeds from here on know lists beside the watch while faults go on; in all later worlds they come
# once faults have stopped.
CHECKED = 96_000

# Seeds from here on know another scheduler that nominates nodes for pods, thinks better of it, and
# binds them anywhere. (New seeds count seconds; all that were kept before are below.)
NOMINATING = 795_750_000
NOMINATING_WORK = {"nominate": 1.5}

# Of seeds from here on, every other world holds nodes for overdue pods.
HOLDING = 795_830_000
HOLD_AFTER_S = 3.0


# In worlds of seeds from here on, nodes whose zones Topolog chooses change hands with pods on them.
OWNING = 795_840_000
OWNER_FAULTS = {"owner": 1.5}

# In two thirds of the worlds of seeds from here on, most pods belong to gangs.
GANGING = 795_850_000

# In worlds of seeds from here on, an operator keeps room for some of the pods.
BOOKING = 795_860_000
BOOKING_WORK = {"book": 1.0, "unbook": 0.3}


# What excuses a kubelet's refusal (S4): some runs do without, so that nothing hides a wrong
# reservation.
EXCUSES = (
    "finish",
    "delete",
    "foreign",
    "force",
    "steal",
    "policy",
    "owner",
    "lose device",
    "remove node",
    "lose state",
    "vanish",
)


class Fixed(msgspec.Struct, frozen=True):
    """Settings that are not drawn: the policy and scope of every kubelet (until it is
    reconfigured), the zones of every node, and faults that are `OFTEN` times as frequent as usual.
    With owner `topolog`, Topolog chooses the zones of every other node, and with `cards` also the
    GPUs, because these nodes have Device objects.
    """

    policy: str = ""
    scope: str = ""
    zones: int = 0
    often: tuple[str, ...] = ()
    owner: str = KUBELET
    cards: bool = False


OFTEN = 10
DRAWN = Fixed()


class Profile(msgspec.Struct, frozen=True):
    """`listing` is by node: `uid` (placements with uids if the CPU checkpoint has them), `named`
    (without), `prints` (a fingerprint instead of placements), `all prints` (of every pod).
    `weights` is action -> relative frequency. `rich`: pods have priorities, may request hugepages
    and more than small zones have; lists are calls; stores follow the log. `small`: pods as small
    machines take them, `tight` or `pairs`. `names`: how many names
    exist. `hold_after_s`: when pods are overdue, 0 for never. `gangs`: most pods belong to one.
    """

    nodes: tuple[SimulatedNode, ...]
    listing: dict[str, str]
    schedulers: int
    binders: int
    stores: int
    weights: dict[str, float]
    batch: int
    live_pods: int
    rich: bool = False
    small: str = ""
    names: int = 14
    hold_after_s: float = 0.0
    gangs: bool = False


def draw(rng: random.Random, seed: int = 0, fixed: Fixed = DRAWN) -> Profile:
    """Return the parameters of one run."""
    later, small = seed >= LATER, _small(seed)
    if small:
        fixed = msgspec.structs.replace(
            fixed,
            policy=fixed.policy or "single-numa-node",
            zones=fixed.zones or rng.choice((2, 2, 3)),
        )
    sizes, count = ((4,), 1) if small else ((4, 6, 8), rng.choice((1, 1, 2, 2, 3)))
    nodes = tuple(_node(rng, f"n{number}", later, fixed, sizes) for number in range(count))
    modes = ("uid", "uid", "named", "named", "prints", "all prints")
    listing = {node.name: rng.choice(modes) for node in nodes}
    known_kinds = known_faults(seed)
    faults = {name: weight * rng.choice((0, 0, 0.5, 1, 2)) for name, weight in known_kinds.items()}
    to_do = {**WORK, **(LATER_WORK if later else {}), **(CHECKED_WORK if seed >= CHECKED else {})}
    to_do |= NOMINATING_WORK if seed >= NOMINATING else {}
    to_do |= BOOKING_WORK if seed >= BOOKING else {}
    work = {name: weight * rng.choice((0.5, 1, 1, 2)) for name, weight in to_do.items()}
    kind = rng.random()
    if kind < 0.1:
        faults = dict.fromkeys(faults, 0.0)
    elif kind < 0.4 and not small:
        faults |= dict.fromkeys(EXCUSES, 0.0)
        work |= dict.fromkeys(EXCUSES, 0.0)
    if later and seed % CROWDED == 1:
        work |= {name: work[name] * factor for name, factor in CROWD.items()}
    if seed >= THEMED:
        faults, work = (
            {name: weight * theme(seed).get(name, 1.0) for name, weight in each.items()}
            for each in (faults, work)
        )
    faults |= {name: OFTEN * known_kinds[name] for name in fixed.often}
    if seed >= NEWEST:
        work["go unseen"] = UNSEEN if work["delete"] else 0.0
    return Profile(
        nodes,
        listing,
        schedulers=1 if small == "pairs" else rng.choice((1, 1, 2, 3)),
        binders=1 if small == "pairs" else rng.choice((1, 2, 2)),
        stores=1 if small == "pairs" else rng.choice((1, 1, 2)),
        weights={**faults, **work},
        batch=rng.choice((1, 2, 5)),
        live_pods=14 if later and seed % CROWDED == 1 else rng.choice((4, 8, 14)),
        rich=later,
        small=small,
        names=3 if small == "pairs" else 14,
        hold_after_s=HOLD_AFTER_S if seed >= HOLDING and seed % 2 else 0.0,
        gangs=seed >= GANGING and seed % 3 != 0,
    )


def known_faults(seed: int) -> dict[str, float]:
    """The faults of a seed's worlds."""
    return {
        **FAULTS,
        **(LATER_FAULTS if seed >= LATER else {}),
        **(NEWEST_FAULTS if seed >= NEWEST else {}),
        **(OWNER_FAULTS if seed >= OWNING else {}),
    }


def theme(seed: int) -> dict[str, float]:
    """Actions that are more or less frequent in this world."""
    return _themes(seed)[seed % len(_themes(seed))] if seed >= THEMED else {}


def _themes(seed: int) -> tuple[dict[str, float], ...]:
    return NEWEST_THEMES if seed >= NEWEST else THEMES


def _small(seed: int) -> str:
    """Return the pods for which the machines of a theme are made, if the theme has machines of its
    own.
    """
    return (
        {TIGHT: "tight", PAIRS: "pairs"}.get(seed % len(_themes(seed)), "")
        if seed >= THEMED
        else ""
    )


def _node(
    rng: random.Random, name: str, later: bool, fixed: Fixed, cpus_a_zone: Sequence[int]
) -> SimulatedNode:
    zones = fixed.zones or rng.choice((1, 2, 2, 3, 4, 8) if later else (1, 2, 2, 2, 3))
    devices = {GPU: rng.choice((0, zones, 2 * zones))}
    cpus, memory_bytes = zones * rng.choice(cpus_a_zone), zones * rng.choice((4, 8)) * GIB
    pages = {HUGEPAGE_BYTES: zones * 256} if later and rng.random() < 0.5 else {}
    return lay_out(
        name,
        NodeShape(zones, cpus, memory_bytes, devices, pages),
        _fixed(name, policies(rng), fixed),
    )


def _fixed(name: str, drawn: Policies, fixed: Fixed) -> Policies:
    policy, scope = fixed.policy or drawn.topology_policy, fixed.scope or drawn.topology_scope
    owner = KUBELET if int(name.removeprefix("n")) % 2 else fixed.owner
    return msgspec.structs.replace(drawn, topology_policy=policy, topology_scope=scope, owner=owner)


def policies(rng: random.Random) -> Policies:
    """Draw a kubelet's policy and scope, mostly single-numa-node."""
    policy = rng.choice(("single-numa-node",) * 4 + ("restricted", "best-effort", "none"))
    return Policies(policy, rng.choice(("container", "container", "pod")))
