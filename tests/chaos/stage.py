"""Everything that faults can act on: the running Topolog, its servers and their disks, the proxies
in front of them, and a restart.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import msgspec

from services.embedded.postgres import EmbeddedPostgres
from tests.chaos.disks import Disk
from tests.chaos.proxy import Proxy
from tests.road.harness import Road


class Stage(msgspec.Struct):
    """`streams` is the folder of JetStream, `database_url` bypasses the proxy. `disks` is by
    server, empty if this system permits no mounts. `start` starts Topolog again after a stop;
    `broken` lists violations seen meanwhile.
    """

    road: Road
    start: Callable[[], Road]
    database: EmbeddedPostgres
    database_url: str
    streams: Path
    backups: Path
    disks: dict[str, Disk]
    postgres: Proxy
    nats: Proxy
    rng: random.Random
    broken: list[str] = []
