"""The keys with which exporters log in to the bus of a run: each for its share of the simulated
nodes, or for its own node of an outside cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

from services.embedded.data_dir import DataDir
from services.embedded.nats_credentials import keep, names_in, seed_file
from services.embedded.servers import EmbeddedServers


def credentials(folder: DataDir) -> Path:
    """Where a data folder keeps them."""
    return folder.folder("nats") / "credentials"


async def urls(
    servers: EmbeddedServers, folder: DataDir, shares: Mapping[str, Path]
) -> dict[str, str]:
    """The bus' URL of each exporter, by its name, once the bus knows them. `shares` are their files
    of nodes. Raises DataFolderError."""
    place = credentials(folder)
    keep(place, [(name, names_in(path)) for name, path in shares.items()])
    await servers.reload_nats()
    scheme, _, rest = servers.nats_url.partition("://")
    host = rest.rpartition("@")[2]
    return {
        name: f"{scheme}://{host}{'&' if '?' in host else '?'}seed={quote(str(seed_file(place, name)))}"
        for name in shares
    }


async def seeds(servers: EmbeddedServers, folder: DataDir, nodes: Iterable[str]) -> dict[str, str]:
    """The text of each node's seed, once the bus knows them all. Raises DataFolderError."""
    place, listed = credentials(folder), sorted(nodes)
    keep(place, [(node, [node]) for node in listed])
    await servers.reload_nats()
    return {node: seed_file(place, node).read_text() for node in listed}
