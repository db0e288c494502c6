"""The kubeconfig of a data folder, for kubectl and Topolog's commands.

A simulated cluster gets a file without credentials; for an outside cluster the path of its
kubeconfig is kept.
"""

from __future__ import annotations

import json
from pathlib import Path

_FILE, _OUTSIDE = "kubeconfig", "kubeconfig.outside"
NAME = "topolog-simulated"


def path_of(folder: Path) -> Path:
    """Return the path of the simulated cluster's kubeconfig."""
    return folder / _FILE


def write_simulated(folder: Path, port: int) -> Path:
    """Write a kubeconfig (JSON is YAML) for the simulated API on loopback."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": NAME, "user": {}}],
        "contexts": [
            {"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}
        ],
        "current-context": NAME,
    }
    (folder / _OUTSIDE).unlink(missing_ok=True)
    _replace(path_of(folder), json.dumps(document, indent=2) + "\n")
    return path_of(folder)


def write_outside(folder: Path, kubeconfig: str) -> None:
    """Keep the kubeconfig (a file or a URL) of an outside cluster."""
    absolute = (
        kubeconfig
        if kubeconfig.startswith(("http://", "https://"))
        else str(Path(kubeconfig).expanduser().resolve())
    )
    path_of(folder).unlink(missing_ok=True)
    _replace(folder / _OUTSIDE, absolute)


def read_kubeconfig(folder: Path) -> str:
    """Return the kubeconfig of the folder's cluster, "" before the first start."""
    try:
        return (folder / _OUTSIDE).read_text()
    except OSError:
        return str(path_of(folder)) if path_of(folder).exists() else ""


def last_port(folder: Path) -> int:
    """Return the port in the kubeconfig, 0 if there is none."""
    try:
        server = json.loads(path_of(folder).read_text())["clusters"][0]["cluster"]["server"]
        return int(server.rpartition(":")[2])
    except (OSError, ValueError, LookupError, TypeError):
        return 0


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.chmod(0o600)
    temporary.replace(path)
