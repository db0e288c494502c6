"""`topolog exporter`: what the exporter would say about a recorded moment of a node, and what its
settings are.

Must not decide anything: it names folders, calls the exporter's core and prints.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from services.cli.output import EXIT_USAGE, CommandError
from services.exporter import core, precedence, recorded
from services.exporter.kubelet_config import KubeletConfigError
from services.exporter.rte_config import RteConfigError
from services.exporter.source_recording import RecordingError
from services.exporter.sysfs import SysfsError
from shared.domain.quantity import format_amount
from shared.domain.report import Report
from shared.kube.nrt import to_nrt
from shared.runtime.settings import SettingsInvalid

app = typer.Typer(help="The node agent: reports of nodes.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    """Add `exporter` to the `topolog` command."""
    root.add_typer(app, name="exporter")


@app.command("report")
def report_command(
    recording: Annotated[
        Path, typer.Option(help="Folder with list.pb or list.json and allocatable.pb or .json.")
    ],
    sysfs: Annotated[Path, typer.Option(help="Root of the node's /sys tree.")] = Path("/sys"),
    node: Annotated[
        str, typer.Option(help="Name of the node; else the recording's folder name.")
    ] = "",
    kubelet_config: Annotated[
        Path | None, typer.Option(help="KubeletConfiguration in YAML or JSON.")
    ] = None,
    method: Annotated[
        str, typer.Option(help=f"Fingerprint: {' or '.join(core.METHODS)}.")
    ] = core.METHODS[0],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the NodeResourceTopology object.")
    ] = False,
) -> None:
    """Print the report of a recorded moment, as a table or as a NodeResourceTopology v1alpha2
    object.
    """
    if method not in core.METHODS:
        raise CommandError(
            f"--method {method!r} is unknown",
            f"--method {' or --method '.join(core.METHODS)}",
            EXIT_USAGE,
        )
    try:
        made = recorded.report(
            recording, sysfs, node or recording.resolve().name, kubelet_config, core.Rules(method)
        )
    except (RecordingError, SysfsError, KubeletConfigError) as error:
        problem, _, remedy = str(error).rpartition("; ")
        raise CommandError(
            problem or remedy, remedy if problem else "topolog exporter report --help", EXIT_USAGE
        ) from error
    typer.echo(json.dumps(to_nrt(made), indent=2) if as_json else _text(made))


@app.command("config", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def config_command(
    context: typer.Context,
    dump: Annotated[
        bool, typer.Option("--dump", help="Print every setting and where its value came from.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check the exporter's settings: give the flags that the exporter is given, in the environment
    that it has.
    """
    try:
        found = precedence.gathered(context.args, os.environ)
        lines = precedence.dump(found)
    except (RteConfigError, SettingsInvalid) as error:
        raise CommandError(
            str(error), "correct what is named, or see docs/exporter.md", EXIT_USAGE
        ) from error
    if as_json:
        document = {"settings": [msgspec.to_builtins(line) for line in lines], "left_out": [
            msgspec.to_builtins(each) for each in found.left_out]}  # fmt: skip
        typer.echo(json.dumps(document, indent=2))
    elif dump:
        typer.echo("\n".join(f"{line.setting} = {line.value!r}  ({line.origin})" for line in lines))
        for each in found.left_out:
            typer.echo(f"left out: {each.origin}: {each.reason}")
    else:
        typer.echo(
            f"{len(lines)} settings hold, {len(found.left_out)} keys are left out; see them with --dump"
        )


def _text(report: Report) -> str:
    lines = [
        f"{report.node}: {report.policy}, scope {report.scope}, fingerprint {report.fingerprint}"
    ]
    for zone, told in zip(to_nrt(report)["zones"], report.zones, strict=True):
        lines.append(
            f"  {zone['name']}: distances {', '.join(str(cost['value']) for cost in zone['costs'])}"
        )
        lines += [
            f"    {one['name']}: {one['available']} of {one['allocatable']} available, capacity {one['capacity']}"
            for one in zone["resources"]
        ]
        bounds = [
            f"{name} {format_amount(name, amount)}"
            for name, amount in sorted(told.bounds.items())
            if amount
        ]
        lines += (
            [f"    at most, as no manager of the kubelet pins it: {', '.join(bounds)}"]
            if bounds
            else []
        )
    return "\n".join(lines)
