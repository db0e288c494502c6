"""Children of `topolog up` run in the folder of the command, so that relative paths in variables
and URLs mean the same files (issue 42, F).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from services.embedded.data_dir import DataDir
from services.embedded.up import children
from services.embedded.up.children import Ports
from services.embedded.up.options import UpOptions


def test_a_child_runs_in_the_folder_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = UpOptions(data_dir=tmp_path / "data", schedulers=1)
    names = [name for name, _, *_ in children.service_names(options)]
    ports = Ports(dict.fromkeys(names, 20_001))
    env = {"TOPOLOG_TRACE_FILE": "{service}"}
    with DataDir(tmp_path / "data") as folder:
        (spec, *_) = children.services(options, folder, ports, env)
    assert spec.cwd is None
    # Modules of that folder must not shadow Topolog's.
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "__init__.py").write_text("raise SystemExit('shadowed')")
    python, *flags = spec.argv[: spec.argv.index("-m")]
    code = "import os, services.embedded; print(os.getcwd())"
    done = subprocess.run(
        [python, *flags, "-c", code],
        cwd=tmp_path,
        env={**os.environ, **spec.env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == str(tmp_path), done.stderr
