"""`python scripts/chart.py`: make the templates of charts/topolog from the manifests in k8s/.

A component's objects become a template under the component's value. Its patches become conditions
inside the objects that they change, so that both ways of installing have one source. Understands
the patches that k8s/ uses: lists of JSON operations `add` and `replace`, and `$patch: delete`.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
K8S = ROOT / "k8s"
CHART = ROOT / "charts" / "topolog"
NAMESPACE = "{{ .Release.Namespace }}"
CLUSTER_KINDS = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "SecurityContextConstraints",
}
WORKLOADS = {"Deployment", "DaemonSet", "StatefulSet", "Job", "CronJob"}
SCALED = {"topology-store", "scheduler", "binder"}
SKIPPED = {"runbooks"}  # a value of its own: the address of the runbooks

Document = dict[str, Any]


@dataclass
class Choice:
    """A value by condition; `MISSING` leaves the key or the item out."""

    options: list[tuple[str, Any]]
    default: Any


@dataclass
class Several:
    """Items of a list under one condition."""

    items: list[Any]


@dataclass
class Template:
    """A scalar that Helm writes."""

    text: str


@dataclass
class Inserted:
    """Lines at the end of a mapping or a list: a value of the user's, if it is set."""

    value: str


MISSING = object()


@dataclass
class Chart:
    documents: list[tuple[str, str, Document]] = field(default_factory=list)  # file, condition
    workloads: dict[str, Document] = field(default_factory=dict)


def value_name(component: str) -> str:
    """Return the value of a component: `exporter-tokens` is `exporterTokens`."""
    head, *rest = component.split("-")
    return head + "".join(word.capitalize() for word in rest)


def condition(component: str) -> str:
    return f".Values.components.{value_name(component)}"


def components() -> list[str]:
    names = sorted(folder.name for folder in (K8S / "components").iterdir())
    return [name for name in names if name not in SKIPPED]


def load(path: Path) -> list[Document]:
    """Return a file's documents. By way of JSON, so that what YAML aliases share is copied."""
    text = path.read_text(encoding="utf-8")
    return [json.loads(json.dumps(each)) for each in yaml.safe_load_all(text) if each]


def kustomization(folder: Path) -> Document:
    return load(folder / "kustomization.yaml")[0]


def build() -> Chart:
    chart = Chart()
    base = kustomization(K8S / "base")
    for name in base["resources"]:
        add(chart, Path(name).stem, "", load(K8S / "base" / name))
    folders = {name: K8S / "components" / name for name in components()}
    for component, folder in folders.items():
        for name in kustomization(folder).get("resources", []):
            add(chart, component, condition(component), load(folder / name))
    for component, folder in folders.items():
        for patch in kustomization(folder).get("patches", []):
            apply(chart, patch, condition(component))
    production = kustomization(K8S / "overlays" / "production")
    add(
        chart,
        "disruption-budgets",
        ".Values.production",
        load(K8S / "overlays" / "production" / "disruption-budgets.yaml"),
    )
    for patch in production["patches"]:
        apply(chart, patch, ".Values.production")
    for _file, when, document in chart.documents:
        finish(chart, document, {} if when else base["labels"][0]["pairs"])
    return chart


def add(chart: Chart, file: str, when: str, documents: list[Document]) -> None:
    chart.documents += [(file, when, each) for each in documents if each["kind"] != "Namespace"]


def apply(chart: Chart, patch: Document, when: str) -> None:
    """Put a patch as conditions into each object that it changes."""
    target = patch["target"]
    operations = yaml.safe_load(patch["patch"])
    for number, (file, condition_, document) in enumerate(chart.documents):
        metadata = document["metadata"]
        is_kind = re.fullmatch(target["kind"], document["kind"])
        if is_kind and re.fullmatch(target.get("name", ".*"), metadata["name"]):
            if isinstance(operations, dict):
                assert operations["$patch"] == "delete"
                chart.documents[number] = file, f"and {condition_} (not {when})", document
                continue
            for operation in operations:
                change(document, operation, when)


def change(document: Document, operation: Document, when: str) -> None:
    *path, last = operation["path"].removeprefix("/").split("/")
    place: Any = document
    for step in path:
        place = place[int(step)] if isinstance(place, list) else place[step]
    value = operation["value"]
    if last == "-":
        head = place[-1]
        if isinstance(head, Choice) and head.options[-1][0] == when:
            head.options[-1][1].items.append(value)
        else:
            place.append(Choice([(when, Several([value]))], MISSING))
        return
    key: Any = int(last) if isinstance(place, list) else last
    old = place[key] if isinstance(place, list) else place.get(key, MISSING)
    if isinstance(old, Choice):
        old.options.append((when, value))
    else:
        place[key] = Choice([(when, value)], old)


def finish(chart: Chart, document: Document, more_labels: Document) -> None:
    """Put in what every object gets: the release's namespace, the image, values of a workload."""
    kind, metadata = document["kind"], document["metadata"]
    labels = {**metadata.get("labels", {}), **more_labels}
    rest = {key: metadata[key] for key in metadata if key not in ("name", "labels")}
    namespace = {} if kind in CLUSTER_KINDS else {"namespace": Template(NAMESPACE)}
    labelled = {"labels": labels} if labels else {}
    document["metadata"] = {"name": metadata["name"], **namespace, **labelled, **rest}
    if kind in ("CustomResourceDefinition", "PersistentVolumeClaim"):
        kept = document["metadata"].setdefault("annotations", {})
        kept["helm.sh/resource-policy"] = "keep"
    for subject in document.get("subjects", []):
        subject["namespace"] = Template(NAMESPACE)
    if kind == "SecurityContextConstraints":
        document["users"] = [
            Template(user.replace(":topolog:", f":{NAMESPACE}:")) for user in document["users"]
        ]
    if kind == "ServiceMonitor":
        document["spec"]["namespaceSelector"]["matchNames"] = [Template(NAMESPACE)]
    if kind == "PrometheusRule":
        for rule in document["spec"]["groups"][0]["rules"]:
            section = rule["annotations"]["runbook_url"].partition("#")[2]
            rule["annotations"]["runbook_url"] = Template(f"{{{{ .Values.runbooks }}}}#{section}")
    if kind in WORKLOADS:
        finish_workload(chart, document)


def finish_workload(chart: Chart, document: Document) -> None:
    name, kind = document["metadata"]["name"], document["kind"]
    spec = document["spec"]["jobTemplate"]["spec"] if kind == "CronJob" else document["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    value = value_name(name)
    settings = f".Values.workloads.{value}"
    defaults: Document = {"resources": container["resources"], "env": []}
    for part in [*pod.get("initContainers", []), container]:
        if part["image"] == "topolog":
            part["image"] = Template('{{ include "topolog.image" . }}')
        part["resources"] = Template(f"{{{{ toJson {settings}.resources }}}}")
        part["env"].append(Inserted(f"{settings}.env"))
    if name in SCALED:
        spec["replicas"] = Template(f"{{{{ {settings}.replicas }}}}")
        defaults = {"replicas": 2, **defaults}
    if kind == "DaemonSet":
        pod["nodeSelector"] = Template(f"{{{{ toJson {settings}.nodeSelector }}}}")
        defaults["nodeSelector"] = {}
    if kind == "Job":
        # A Job's pod cannot change, so every revision has its own.
        document["metadata"]["name"] = Template(f"{name}-{{{{ .Release.Revision }}}}")
    if kind == "CronJob":
        document["spec"]["schedule"] = Template(f"{{{{ {settings}.schedule | quote }}}}")
        defaults["schedule"] = "17 3 * * *"
    chart.workloads.setdefault(value, defaults)


def lines_of(value: Any, indent: int) -> list[str]:
    """Return the lines of a mapping or list as YAML with Helm's conditions."""
    pad = " " * indent
    lines: list[str] = []
    entries = value.items() if isinstance(value, dict) else [(None, each) for each in value]
    for key, entry in entries:
        if isinstance(entry, Inserted):
            lines += [
                f"{pad}{{{{- with {entry.value} }}}}",
                f"{pad}{{{{- toYaml . | nindent {indent} }}}}",
                f"{pad}{{{{- end }}}}",
            ]
        elif isinstance(entry, Choice):
            lines += choice_lines(key, entry, indent)
        else:
            lines += entry_lines(key, entry, indent)
    return lines


def choice_lines(key: str | None, choice: Choice, indent: int) -> list[str]:
    pad = " " * indent
    lines: list[str] = []
    for number, (when, option) in enumerate(choice.options):
        lines.append(f"{pad}{{{{- {'else if' if number else 'if'} {when} }}}}")
        for one_choice in option.items if isinstance(option, Several) else [option]:
            lines += entry_lines(key, one_choice, indent)
    if choice.default is not MISSING:
        lines.append(f"{pad}{{{{- else }}}}")
        lines += entry_lines(key, choice.default, indent)
    return [*lines, f"{pad}{{{{- end }}}}"]


def entry_lines(key: str | None, entry: Any, indent: int) -> list[str]:
    pad = " " * indent
    head = f"{pad}-" if key is None else f"{pad}{scalar(key)}:"
    if isinstance(entry, dict | list) and entry:
        if key is None:
            first, *others = lines_of(entry, indent + 2)
            return [f"{head} {first.lstrip()}", *others]
        return [head, *lines_of(entry, indent + 2)]
    if isinstance(entry, str) and "\n" in entry:
        mark = "|" if entry.endswith("\n") else "|-"
        return [
            f"{head} {mark}",
            *[f"{pad}  {line}".rstrip() for line in escaped(entry).split("\n")],
        ]
    return [f"{head} {scalar(entry)}"]


def scalar(value: Any) -> str:
    if isinstance(value, Template):
        return value.text
    if isinstance(value, dict | list):
        return "{}" if isinstance(value, dict) else "[]"
    return escaped(yaml.safe_dump(value, width=sys.maxsize).removesuffix("...\n").strip())


def escaped(text: str) -> str:
    """Keep what Prometheus or nats-server writes in braces from Helm."""
    return re.sub(r"\{\{.*?\}\}", lambda found: "{{`" + found.group() + "`}}", text)


def templates(chart: Chart) -> dict[str, str]:
    """Return the text of each template by its file name."""
    files: dict[str, list[str]] = {}
    for file, when, document in chart.documents:
        lines = files.setdefault(f"{file}.yaml", ["{{- /* Made by scripts/chart.py. */}}"])
        lines += [f"{{{{- if {when} }}}}"] if when else []
        lines += ["---", *lines_of(document, 0)]
        lines += ["{{- end }}"] if when else []
    return {name: "\n".join(lines) + "\n" for name, lines in files.items()}


def values(chart: Chart) -> str:
    """Return values.yaml: as the overlay for production."""
    chosen = {
        Path(path).name for path in kustomization(K8S / "overlays" / "production")["components"]
    }
    lines = [
        "# Made by scripts/chart.py: as k8s/overlays/production. values-trial.yaml is for trials.",
        "image:",
        "  repository: topolog  # where you pushed it: registry.example.com/topolog",
        '  tag: ""  # the chart\'s version',
        "# Topolog's services refuse to start if they are open to the network.",
        "production: true",
        "# The address of your copy of docs/operate.md, for the alerts.",
        "runbooks: docs/operate.md",
        "# Public passwords for trials. Otherwise the secrets of k8s/README.md must exist.",
        "trialSecrets: false",
        "# k8s/components has these, and k8s/README.md says what each does.",
        "components:",
    ]
    for component in components():
        lines.append(f"  {value_name(component)}: {str(component in chosen).lower()}")
    lines += ["# `env` has further settings (docs/settings.md) as Kubernetes writes variables."]
    lines += ["workloads:", *lines_of(dict(sorted(chart.workloads.items())), 2)]
    return "\n".join(lines) + "\n"


def trial_values(chart: Chart) -> str:
    """Return values-trial.yaml: as the overlay for development."""
    dev = kustomization(K8S / "overlays" / "dev")
    (patch,) = dev["patches"]
    (operation,) = yaml.safe_load(patch["patch"])
    chosen = {Path(path).name for path in dev["components"]}
    small = {"requests": {"cpu": operation["value"]}}
    workloads: Document = {name: {"replicas": 1} for name in map(value_name, SCALED)}
    for _file, _when, document in chart.documents:
        if re.fullmatch(patch["target"]["kind"], document["kind"]):
            workloads.setdefault(value_name(str(document["metadata"]["name"])), {})
    for name in workloads:
        workloads[name]["resources"] = small
    content = {
        "production": False,
        "trialSecrets": True,
        "components": {value_name(name): name in chosen for name in components()},
        "workloads": dict(sorted(workloads.items())),
    }
    head = "# Made by scripts/chart.py: as k8s/overlays/dev. Its passwords are public.\n"
    return head + "\n".join(lines_of(content, 0)) + "\n"


def trial_secrets() -> str:
    lines = ["{{- /* Made by scripts/chart.py. */}}", "{{- if .Values.trialSecrets }}"]
    for secret in kustomization(K8S / "overlays" / "dev")["secretGenerator"]:
        pairs = dict(literal.split("=", 1) for literal in secret["literals"])
        metadata = {"name": secret["name"], "namespace": Template(NAMESPACE)}
        document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": "Opaque",
            "stringData": pairs,
        }
        lines += ["---", *lines_of(document, 0)]
    return "\n".join([*lines, "{{- end }}"]) + "\n"


def dashboards() -> str:
    (generated,) = kustomization(K8S / "components" / "monitoring")["configMapGenerator"]
    lines = [
        "{{- /* Made by scripts/chart.py. */}}",
        f"{{{{- if {condition('monitoring')} }}}}",
        "apiVersion: v1",
        "kind: ConfigMap",
        "metadata:",
        f"  name: {generated['name']}",
        f"  namespace: {NAMESPACE}",
        "  labels:",
        *[f'    {key}: "{text}"' for key, text in generated["options"]["labels"].items()],
        "data:",
    ]
    for entry in generated["files"]:
        name, _, path = entry.partition("=")
        lines += [f"  {name}: |", f'{{{{ .Files.Get "{path}" | trim | indent 4 }}}}']
    return "\n".join([*lines, "{{- end }}"]) + "\n"


def schema(chart: Chart) -> str:
    """Return values.schema.json, which Helm checks values by: a misspelt name is an error."""
    kinds: Document = {
        "replicas": {"type": "integer", "minimum": 1},
        "resources": {"type": "object"},
        "env": {"type": "array", "items": {"type": "object", "required": ["name"]}},
        "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}},
        "schedule": {"type": "string", "minLength": 9},
    }

    def closed(properties: Document, **others: Any) -> Document:
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": properties,
            **others,
        }

    flags = {value_name(name): {"type": "boolean"} for name in components()}
    kubelets = [name for name in components() if name.startswith("kubelet-")]
    servers = [("nats", "nats-cluster"), ("postgres", "cloudnative-pg")]
    both = [*servers, *combinations(kubelets, 2)]
    refused = [
        {"properties": {value_name(name): {"const": True} for name in pair}} for pair in both
    ]
    workloads = {
        name: closed({key: kinds[key] for key in defaults})
        for name, defaults in sorted(chart.workloads.items())
    }
    image = closed({"repository": {"type": "string", "minLength": 1}, "tag": {"type": "string"}})
    content = closed(
        {
            "image": image,
            "production": {"type": "boolean"},
            "runbooks": {"type": "string", "minLength": 1},
            "trialSecrets": {"type": "boolean"},
            "components": closed(flags, **{"not": {"anyOf": refused}}),
            "workloads": closed(workloads),
        }
    )
    return (
        json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", **content}, indent=2)
        + "\n"
    )


def description() -> str:
    """Return Chart.yaml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    content = {
        "apiVersion": "v2",
        "name": "topolog",
        "description": project["description"],
        "type": "application",
        "version": project["version"],
        "appVersion": project["version"].rpartition(".")[0],
        "kubeVersion": ">=1.28.0-0",
    }
    return "# Made by scripts/chart.py.\n" + yaml.safe_dump(content, sort_keys=False, width=200)


def files() -> dict[str, str]:
    """Return every generated file of the chart by its path in it."""
    chart = build()
    return {
        **{f"templates/{name}": text for name, text in templates(chart).items()},
        "templates/trial-secrets.yaml": trial_secrets(),
        "templates/dashboards.yaml": dashboards(),
        "Chart.yaml": description(),
        "values.yaml": values(chart),
        "values-trial.yaml": trial_values(chart),
        "values.schema.json": schema(chart),
    }


def main() -> None:
    for old in (CHART / "templates").glob("*.yaml"):
        old.unlink()
    for name, text in files().items():
        path = CHART / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
