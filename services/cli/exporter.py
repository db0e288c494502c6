"""`topolog exporter`: print the report of a recorded node, and check the exporter's settings.

Decides nothing: it calls the exporter's core and prints.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from services.cli.output import EXIT_USAGE, CommandError, say, say_verbatim
from services.cli.paths import path_option
from services.cli.verbs import group
from services.exporter import core, precedence, recorded
from services.exporter.kubelet_config import KubeletConfigError
from services.exporter.rte_config import RteConfigError
from services.exporter.source_recording import RecordingError
from services.exporter.sysfs import SysfsError
from shared.domain.quantity import format_amount
from shared.domain.report import Report
from shared.kube.nrt import to_nrt
from shared.runtime.settings import SettingsInvalid

app = group("Inspect reports and settings of the exporter.")


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="exporter")


@app.command("report")
def report_command(
    recording: Annotated[
        Path,
        path_option(help="Folder with list.pb or list.json, and allocatable.pb or .json."),
    ],
    sysfs: Annotated[Path, path_option(help="Root of the node's /sys tree.")] = Path("/sys"),
    node: Annotated[
        str, typer.Option(help="Node name. Default: the name of the recording's folder.")
    ] = "",
    kubelet_config: Annotated[
        Path | None, path_option(help="KubeletConfiguration in YAML or JSON.")
    ] = None,
    method: Annotated[
        str, typer.Option(help=f"Fingerprint: {' or '.join(core.METHODS)}.")
    ] = core.METHODS[0],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the NodeResourceTopology object.")
    ] = False,
) -> None:
    """Print the report of a recorded node as a table or a NodeResourceTopology v1alpha2 object."""
    if method not in core.METHODS:
        raise CommandError(
            f"--method {method!r} is unknown",
            f"--method {' or --method '.join(core.METHODS)}",
            EXIT_USAGE,
        )
    try:
        report, notices = recorded.with_notices(
            recording, sysfs, node or recording.resolve().name, kubelet_config, core.Rules(method)
        )
    except (RecordingError, SysfsError, KubeletConfigError) as error:
        problem, _, remedy = str(error).rpartition("; ")
        raise CommandError(
            problem or remedy, remedy if problem else "topolog exporter report --help", EXIT_USAGE
        ) from error
    say_verbatim(json.dumps(to_nrt(report), indent=2) if as_json else _text(report))
    for notice in notices:
        say(notice, to=sys.stderr)


@app.command("config", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def config_command(
    context: typer.Context,
    dump: Annotated[
        bool, typer.Option("--dump", help="Print every setting and its origin.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check the exporter's settings, from its flags and its environment."""
    try:
        gathered = precedence.gathered(context.args, os.environ)
        lines = precedence.dump(gathered)
    except (RteConfigError, SettingsInvalid) as error:
        raise CommandError(
            str(error), "correct the named setting; see docs/exporter.md", EXIT_USAGE
        ) from error
    if as_json:
        document = {
            "settings": [msgspec.to_builtins(line) for line in lines],
            "left_out": [msgspec.to_builtins(key) for key in gathered.left_out],
        }
        say_verbatim(json.dumps(document, indent=2))
    elif dump:
        for line in lines:
            say(f"{line.setting} = {line.value!r}  ({line.origin})")
        for key in gathered.left_out:
            say(f"left out: {key.origin}: {key.reason}")
    else:
        say(
            f"{len(lines)} settings are valid, {len(gathered.left_out)} keys are left out; "
            "list them with --dump"
        )


def _text(report: Report) -> str:
    lines = [
        f"{report.node}: {report.policy}, scope {report.scope}, fingerprint {report.fingerprint}"
    ]
    for nrt_zone, zone in zip(to_nrt(report)["zones"], report.zones, strict=True):
        distances = ", ".join(str(cost["value"]) for cost in nrt_zone["costs"])
        lines.append(f"  {nrt_zone['name']}: distances {distances}")
        lines += [
            f"    {resource['name']}: {resource['available']} of {resource['allocatable']} "
            f"available, capacity {resource['capacity']}"
            for resource in nrt_zone["resources"]
        ]
        bounds = [
            f"{name} {format_amount(name, amount)}"
            for name, amount in sorted(zone.bounds.items())
            if amount
        ]
        if bounds:
            lines.append(f"    at most, because no kubelet manager pins it: {', '.join(bounds)}")
    return "\n".join(lines)
