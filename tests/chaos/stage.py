"""What faults can reach: the running Topolog, its servers and their disks, the proxies ahead of
them, and how to begin anew.
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
    """`streams` is the folder of JetStream, `database_url` leads around the proxy. `disks` is by
    server, empty where this system permits no mounts. `start` begins Topolog again after a stop;
    `broken` is what was found broken meanwhile."""

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
