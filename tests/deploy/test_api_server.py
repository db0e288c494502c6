"""The API server that TOPOLOG_TEST_KUBECONFIG names accepts every object of the chart and of k8s/,
with `--dry-run=server`; nothing without it.

The server needs no kubelet and no controller. Kinds of other projects need their definitions there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.deploy.manifests import COMPONENTS, K8S, KUSTOMIZATION, OVERLAYS, Document, built
from tests.deploy.test_chart import CHART, generator, rendered, values

KUBECONFIG = os.environ.get("TOPOLOG_TEST_KUBECONFIG", "")
FOREIGN = {"monitoring.coreos.com", "postgresql.cnpg.io", "security.openshift.io"}
NAMESPACE = "topolog"
# What a component takes the place of.
INSTEAD = {"nats": "nats-cluster", "postgres": "cloudnative-pg"}
# `runbooks` has no objects, and changes only a kind of another project.
ADDED = [folder.name for folder in COMPONENTS if folder.name != "runbooks"]

if not KUBECONFIG:
    pytest.skip("TOPOLOG_TEST_KUBECONFIG names no server", allow_module_level=True)


def kubectl(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = ["kubectl", f"--kubeconfig={KUBECONFIG}", *words]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module", autouse=True)
def namespace() -> Iterator[None]:
    """The namespace of the objects, which a dry run does not create. Without a controller manager
    nothing but the last call ends a namespace; this one is empty.
    """
    is_made = not kubectl("create", "namespace", NAMESPACE).returncode
    yield
    if is_made:
        kubectl("delete", "namespace", NAMESPACE, "--wait=false")
        without_finalizers = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE},
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/finalize"
        kubectl("replace", f"--raw={path}", "-f", "-", stdin=json.dumps(without_finalizers))


@pytest.fixture(scope="module")
def api_groups() -> set[str]:
    """The API groups of the server."""
    return {
        line.partition("/")[0] for line in kubectl("api-versions").stdout.split() if "/" in line
    }


def check_accepted(objects: list[Document], api_groups: set[str]) -> None:
    """Check that the server takes every object without an error or a warning."""
    taken = [
        document
        for document in objects
        if document["apiVersion"].partition("/")[0] not in FOREIGN - api_groups
    ]
    assert taken
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": taken})
    answer = kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=text)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert len(answer.stdout.splitlines()) == len(taken)


@pytest.mark.parametrize("folder", OVERLAYS, ids=lambda folder: str(folder.name))
def test_overlays(folder: Path, api_groups: set[str]) -> None:
    check_accepted(built(folder), api_groups)


@pytest.mark.parametrize("component", ADDED)
def test_production_with_each_component(
    component: str, tmp_path: Path, api_groups: set[str]
) -> None:
    copy = tmp_path / "k8s"
    shutil.copytree(K8S, copy)
    file = copy / "overlays" / "production" / KUSTOMIZATION
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    names = [Path(name).name for name in content["components"]]
    kept = [name for name in names if name not in (component, INSTEAD.get(component))]
    content["components"] = [f"../../components/{name}" for name in [*kept, component]]
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    check_accepted(built(file.parent), api_groups)


@pytest.mark.parametrize("file", ["values.yaml", "values-trial.yaml"])
def test_the_chart(file: str, api_groups: set[str]) -> None:
    check_accepted(rendered(values(yaml.safe_load((CHART / file).read_text()))), api_groups)


def test_the_chart_with_every_component(api_groups: set[str]) -> None:
    makes = generator()
    names = [name for name in makes.components() if name not in INSTEAD and "kubelet-" not in name]
    chosen = {makes.value_name(name): True for name in [*names, "kubelet-openshift"]}
    check_accepted(rendered(values({"components": chosen})), api_groups)
