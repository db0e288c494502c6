"""The keys with which the exporters of a run log in to its own bus: each for its share of the simulated nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from services.embedded.data_dir import DataDir
from services.embedded.nats_credentials import keep, names_in, seed_file
from services.embedded.servers import EmbeddedServers


def credentials(folder: DataDir) -> Path:
    """Where a data folder keeps them."""
    return folder.folder("nats") / "credentials"


async def urls(servers: EmbeddedServers, folder: DataDir, shares: Mapping[str, Path]) -> dict[str, str]:
    """The bus' URL of each exporter, by its name, once the bus knows them. `shares` are their files of nodes.
    Raises DataFolderError."""
    place = credentials(folder)
    keep(place, [(name, names_in(path)) for name, path in shares.items()])
    await servers.reload_nats()
    scheme, _, rest = servers.nats_url.partition("://")
    host = rest.rpartition("@")[2]
    return {name: f"{scheme}://{host}{'&' if '?' in host else '?'}seed={quote(str(seed_file(place, name)))}" for name in shares}
