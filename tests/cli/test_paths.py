"""Paths on the command line are absolute before any process starts in another folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from services.cli.main import app
from services.cli.paths import absolute_path, file_or_url

# Options that name files by their meaning, whatever their type is.
FILE_WORDS = ("dir", "file", "kubeconfig", "sysfs", "recording", "machine", "pods", "out", "plot")
# `up --pods` is a number; `--nodes-file` and the like are covered by their type.
NO_PATHS = {("up", "pods")}


def parameters(group: Any, verb: str = "") -> Iterator[tuple[str, Any]]:
    for parameter in group.params:
        yield verb, parameter
    for name in group.list_commands(None) if hasattr(group, "list_commands") else ():
        yield from parameters(group.get_command(None, name), f"{verb} {name}".strip())


PARAMETERS = list(parameters(get_command(app)))


def parser_of(parameter: Any) -> Any:
    return parameter.type_descriptor.parameter_info.parser


def test_there_are_path_options() -> None:
    paths = [parameter for _, parameter in PARAMETERS if parser_of(parameter) is absolute_path]
    assert len(paths) > 20


def test_every_path_is_made_absolute_by_its_type() -> None:
    wrong = []
    for verb, parameter in PARAMETERS:
        is_path = "Path" in str(parameter.type_descriptor.annotation)
        by_name = set(parameter.name.split("_")) & set(FILE_WORDS)
        if not is_path and (not by_name or (verb, parameter.name) in NO_PATHS):
            continue
        if parser_of(parameter) not in (absolute_path, file_or_url):
            wrong.append(f"{verb}: {parameter.name}")
    assert wrong == []


def test_a_relative_path_is_relative_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert absolute_path("sub/../x") == tmp_path / "x"
    assert absolute_path("~/x") == Path("/home/me/x")
    assert absolute_path("/x") == Path("/x")
    assert absolute_path("-") == Path("-")
    assert file_or_url("kube/config") == os.fspath(tmp_path / "kube" / "config")
    assert file_or_url("https://127.0.0.1:6443") == "https://127.0.0.1:6443"
    assert file_or_url("") == ""


def test_up_passes_an_absolute_kubeconfig_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from services.cli import up

    seen: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(up, "_run", lambda _dir, _cluster, options, _plain: seen.update(options))
    command: Any = get_command(app)
    for arguments, variables in (
        (["up", "--kubeconfig", "kube/config"], {}),
        (["up"], {"TOPOLOG_KUBECONFIG": "kube/config"}),
    ):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        seen.clear()
        with pytest.raises((SystemExit, typer.Exit)):
            command(arguments, standalone_mode=True)
        assert seen["kubeconfig"] == str(tmp_path / "kube" / "config")
