"""k8s/ as values: the files of the base and of each component, their rights, containers and mounts.
For tests.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
KUSTOMIZATION = "kustomization.yaml"
KUSTOMIZATIONS = sorted(path.parent for path in K8S.rglob(KUSTOMIZATION))
OVERLAYS = [folder for folder in KUSTOMIZATIONS if folder.parent.name == "overlays"]
COMPONENTS = [folder for folder in KUSTOMIZATIONS if folder.parent.name == "components"]
CONFIGURATION = (K8S / "extender",)
WORKLOADS = ("Deployment", "DaemonSet", "StatefulSet", "Job")

Document = dict[str, Any]


def read(text: str) -> list[Document]:
    """Return every document of a stream; with libyaml if PyYAML has it, which is ten times as
    fast."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, loader) if document is not None]


@lru_cache
def documents(path: Path) -> list[Document]:
    return read(path.read_text(encoding="utf-8"))


def files(folder: str = "") -> list[Path]:
    """Return every file with Kubernetes objects under a folder of k8s/, without kustomizations and
    configuration of other programs.
    """
    paths = sorted((K8S / folder).rglob("*.yaml"))
    return [
        path for path in paths if path.name != KUSTOMIZATION and path.parent not in CONFIGURATION
    ]


def of_kind(*kinds: str, folder: str = "") -> list[Document]:
    return [
        document
        for path in files(folder)
        for document in documents(path)
        if document["kind"] in kinds
    ]


def workloads(folder: str = "") -> list[Document]:
    return of_kind(*WORKLOADS, folder=folder)


def name_of(document: Document) -> str:
    return str(document["metadata"]["name"])


def pod_of(workload: Document) -> Document:
    return dict(workload["spec"]["template"]["spec"])


def secrets_of(workload: Document) -> Iterator[tuple[str, str, bool]]:
    """Yield (secret, key, whether it may be missing) of a workload: from variables, and from files
    that `..._FILE` names. Such a file must be mounted with its folder, because the mount of a
    single file keeps the old content."""
    volumes = {volume["name"]: volume for volume in pod_of(workload)["volumes"]}
    for container in containers(workload):
        for variable in container.get("env", []):
            if "secretKeyRef" in variable.get("valueFrom", {}):
                reference = variable["valueFrom"]["secretKeyRef"]
                yield reference["name"], reference["key"], bool(reference.get("optional"))
            elif variable["name"].endswith(("_URL_FILE", "_PASSWORD_FILE", "_TOKEN_FILE")):
                folder, _, file = variable["value"].rpartition("/")
                (mount,) = [
                    mount for mount in container["volumeMounts"] if mount["mountPath"] == folder
                ]
                assert mount["readOnly"]
                assert "subPath" not in mount
                yield _held(volumes[mount["name"]], file)


def _held(volume: Document, file: str) -> tuple[str, str, bool]:
    sources = [source["secret"] for source in volume.get("projected", {}).get("sources", [])] or [
        volume["secret"]
    ]
    ((source, item),) = [
        (source, item) for source in sources for item in source["items"] if item["path"] == file
    ]
    return source.get("secretName") or source["name"], item["key"], bool(source.get("optional"))


def containers(workload: Document) -> Iterator[Document]:
    pod = pod_of(workload)
    yield from pod.get("initContainers", [])
    yield from pod["containers"]


def called(folder: Path) -> str:
    return str(folder.relative_to(K8S))


def kubectl() -> str:
    tool = shutil.which("kubectl") or shutil.which("kustomize")
    if tool is None:
        pytest.skip("neither kubectl nor kustomize is installed")
    return tool


# Official images of servers, by the versions that the bundled servers have in tests.
SERVERS = {"postgres:18.4", "nats:2.15.1"}


@lru_cache
def built(folder: Path) -> list[Document]:
    tool = kubectl()
    command = [tool, "build"] if Path(tool).name == "kustomize" else [tool, "kustomize"]
    done = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return read(done.stdout)


def kustomization(folder: Path) -> Document:
    return documents(folder / KUSTOMIZATION)[0]
