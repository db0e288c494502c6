"""`kubectl get noderesourcetopologies` shows what topology-store writes: every column of our CRD
finds its value in a mirrored object."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from shared.domain.report import Report, Zone, ZoneResource
from shared.kube.nrt_mirrored import mirrored

CRD = Path(__file__).parents[2] / "k8s/components/noderesourcetopology/crd.yaml"
ATTRIBUTE = re.compile(r'\.attributes\[\?\(@\.name=="([^"]+)"\)\]\.value')


def columns() -> dict[str, str]:
    (version,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    return {column["name"]: column["jsonPath"] for column in version["additionalPrinterColumns"]}


def shown(topology: dict[str, Any]) -> dict[str, str]:
    """Return the cells of an object by column. A column shows one value of one attribute."""
    values = {item["name"]: item["value"] for item in topology["attributes"]}
    cells = {}
    for name, path in columns().items():
        match = ATTRIBUTE.fullmatch(path)
        if match is not None:
            cells[name] = values.get(match.group(1), "")
    return cells


def report(**devices: int) -> Report:
    zones = tuple(
        Zone(
            number,
            {
                "cpu": ZoneResource(8000, 8000, 8000),
                **{name: ZoneResource(count, count, count) for name, count in devices.items()},
            },
        )
        for number in (0, 1)
    )
    return Report("n1", "boot", 1, policy="best-effort", scope="pod", zones=zones)


def test_every_column_shows_a_value() -> None:
    topology = mirrored(
        report(**{"vendor.com/gpu": 2}), {0: {"cpu": 500}, 1: {"vendor.com/gpu": 1}}, "uid", "log"
    )
    assert shown(topology) == {
        "Policy": "best-effort",
        "Scope": "pod",
        "Zones": "2",
        "Free CPUs": "0:500m 1:8",
        "Free Devices": "vendor.com/gpu 0:2 1:1",
    }
    assert columns()["Age"] == ".metadata.creationTimestamp"


def test_a_node_without_devices_has_no_cell_for_them() -> None:
    assert shown(mirrored(report(), {}, "uid", "log"))["Free Devices"] == ""
