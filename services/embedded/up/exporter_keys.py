"""The keys of exporters on the bus of a run: for a share of the simulated nodes, or for one node of
an outside cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

from services.embedded.data_dir import DataDir
from services.embedded.nats_credentials import keep, load, names_in, seed_file
from services.embedded.servers import EmbeddedServers


def credentials(folder: DataDir) -> Path:
    """Return the folder of the credentials in a data folder."""
    return folder.folder("nats") / "credentials"


async def urls(
    servers: EmbeddedServers, folder: DataDir, shares: Mapping[str, Path]
) -> dict[str, str]:
    """Return the bus' URL of each exporter by name, after the bus has loaded the keys. `shares` are
    their files of nodes. Raises DataFolderError.
    """
    place = credentials(folder)
    keep(place, [(name, names_in(path)) for name, path in shares.items()])
    await servers.reload_nats()
    scheme, _, rest = servers.nats_url.partition("://")
    host = rest.rpartition("@")[2]
    bus = f"{scheme}://{host}{'&' if '?' in host else '?'}"
    return {name: f"{bus}seed={quote(str(seed_file(place, name)))}" for name in shares}


async def seeds(servers: EmbeddedServers, folder: DataDir, nodes: Iterable[str]) -> dict[str, str]:
    """Return the text of the seed of each node, after the bus has loaded the keys. It loaded those
    of earlier runs at its start. Raises DataFolderError.
    """
    place, names = credentials(folder), sorted(nodes)
    loaded_keys = load(place)
    if keep(place, [(node, [node]) for node in names]) != list(loaded_keys):
        await servers.reload_nats()
    return {node: seed_file(place, node).read_text() for node in names}
