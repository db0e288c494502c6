"""The Helm chart has the objects of kustomize. Helm itself is not needed: `gotpl` renders."""

import base64
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from gotpl.exts.helm import HelmTemplateEngine

from tests.deploy.manifests import COMPONENTS, K8S, KUSTOMIZATION, ROOT, Document, built, read

CHART = ROOT / "charts" / "topolog"
# Kustomize alone makes the namespace; Helm is given one.
OF_KUSTOMIZE = {"Namespace"}

Objects = dict[tuple[str, str], Document]


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("chart", ROOT / "scripts" / "chart.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["chart"] = module  # its dataclasses look for their module
    spec.loader.exec_module(module)
    return module


class Files:
    def Get(self, name: str) -> str:  # noqa: N802 (Helm's name)
        return (CHART / name).read_text(encoding="utf-8")


def values(*changes: Document) -> Document:
    """Return the chart's values with changes over them, as Helm merges files of values."""
    merged = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    for change in changes:
        merged = over(merged, change)
    jsonschema.validate(merged, schema())
    return dict(merged)


def over(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: over(old.get(key), value) for key, value in new.items()}}


def schema() -> Document:
    return dict(json.loads((CHART / "values.schema.json").read_text(encoding="utf-8")))


def rendered(chosen: Document) -> list[Document]:
    sources = {
        path.name: path.read_text(encoding="utf-8") for path in (CHART / "templates").iterdir()
    }
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    context = {
        "Values": chosen,
        "Release": {"Namespace": "topolog", "Revision": 1},
        "Chart": {"AppVersion": chart["appVersion"]},
        "Files": Files(),
    }
    contexts = {name: context for name in sources if name.endswith(".yaml")}
    texts = HelmTemplateEngine.from_sources(sources, strict=True).render(contexts)
    return [document for text in texts.values() for document in read(text)]


def by_name(objects: list[Document]) -> Objects:
    """Return objects by kind and name, without what differs on purpose."""
    named = {}
    for document in objects:
        kind, name = document["kind"], document["metadata"]["name"]
        if kind in OF_KUSTOMIZE:
            continue
        if kind == "Job":
            document = over(document, {"metadata": {"name": "migrations"}})
            name = "migrations"
        if kind == "Secret":
            document = {**document, "data": decoded(document)}
            document.pop("stringData", None)
        if kind in ("CustomResourceDefinition", "PersistentVolumeClaim"):
            kept = document["metadata"].pop("annotations", {})
            kept.pop("helm.sh/resource-policy", "")
            document["metadata"] |= {"annotations": kept} if kept else {}
        if kind == "SecurityContextConstraints":
            document["metadata"].pop("namespace", "")  # kustomize does not know the kind's scope
        assert (kind, name) not in named
        named[kind, name] = in_order(document)
    return named


def decoded(secret: Document) -> Document:
    encoded = secret.get("data", {})
    return {
        **secret.get("stringData", {}),
        **{key: base64.b64decode(text).decode() for key, text in encoded.items()},
    }


def in_order(value: Any) -> Any:
    """Return a value without empty mappings, and with lists of named things in order of name."""
    if isinstance(value, dict):
        return {key: in_order(each) for key, each in value.items() if each not in ({}, None)}
    if isinstance(value, list):
        items = [in_order(each) for each in value]
        if all(isinstance(each, dict) for each in items):
            return sorted(items, key=lambda each: json.dumps(each, sort_keys=True))
        return items
    return value


def test_the_chart_is_made_from_the_manifests() -> None:
    files = generator().files()
    assert {name: (CHART / name).read_text(encoding="utf-8") for name in files} == files, (
        "run: make chart"
    )
    templates = {path.name for path in (CHART / "templates").glob("*.yaml")}
    assert templates == {Path(name).name for name in files if name.startswith("templates/")}


@pytest.mark.parametrize(("overlay", "file"), [("production", ""), ("dev", "values-trial.yaml")])
def test_an_overlay_and_its_values_give_the_same_objects(overlay: str, file: str) -> None:
    more = yaml.safe_load((CHART / file).read_text(encoding="utf-8")) if file else {}
    image = {"image": {"repository": "topolog", "tag": "0.2" if not file else "local"}}
    objects = by_name(rendered(values(more, image)))
    expected = by_name(built(K8S / "overlays" / overlay))
    check_equal(objects, expected)


@pytest.mark.parametrize("kubelet", [each.name for each in COMPONENTS if "kubelet-" in each.name])
def test_the_other_components_give_the_same_objects(kubelet: str, tmp_path: Path) -> None:
    makes = generator()
    copy = tmp_path / "k8s"
    shutil.copytree(K8S, copy)
    overlay = copy / "overlays" / "production"
    content = yaml.safe_load((overlay / KUSTOMIZATION).read_text(encoding="utf-8"))
    taken = {Path(entry).name for entry in content["components"]}
    kubelets = {path.name for path in COMPONENTS if "kubelet-" in path.name}
    exclusive = {"nats", "postgres", "runbooks", "exporter-tokens"}
    others = {path.name for path in COMPONENTS} - kubelets - taken - exclusive | {kubelet}
    content["components"] += [
        f"../../components/{name}" for name in makes.components() if name in others
    ]
    (overlay / KUSTOMIZATION).write_text(yaml.safe_dump(content), encoding="utf-8")
    chosen = {makes.value_name(name): True for name in others}
    objects = by_name(rendered(values({"components": chosen, "image": {"tag": "0.2"}})))
    expected = by_name(built(overlay))
    check_equal(objects, expected)


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
@pytest.mark.parametrize("file", ["values.yaml", "values-trial.yaml"])
def test_helm_itself_renders_what_gotpl_renders(file: str) -> None:
    command = ["helm", "template", "topolog", str(CHART), "--namespace=topolog"]
    command += [f"--values={CHART / file}", "--set=components.monitoring=true"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    chosen = yaml.safe_load((CHART / file).read_text(encoding="utf-8"))
    objects = by_name(rendered(values(chosen, {"components": {"monitoring": True}})))
    check_equal(by_name(read(ended.stdout)), objects)


def check_equal(objects: Objects, expected: Objects) -> None:
    assert objects.keys() == expected.keys()
    for key, document in expected.items():
        assert objects[key] == document, key


def test_settings_of_a_workload_reach_its_container() -> None:
    setting = {"name": "TOPOLOG_STRATEGY", "value": "BestFit"}
    scheduler = {"replicas": 3, "env": [setting]}
    objects = by_name(rendered(values({"workloads": {"scheduler": scheduler}})))
    document = objects["Deployment", "scheduler"]
    assert document["spec"]["replicas"] == 3
    (container,) = document["spec"]["template"]["spec"]["containers"]
    assert setting in container["env"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"components": {"consol": True}},
        {"workloads": {"scheduler": {"replicas": 0}}},
        {"components": {"nats": True, "natsCluster": True}},
        {"components": {"kubeletEks": True, "kubeletK3s": True}},
        {"image": {"repository": ""}},
    ],
)
def test_wrong_values_are_refused(wrong: Document) -> None:
    with pytest.raises(jsonschema.ValidationError):
        values(wrong)
