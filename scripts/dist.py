"""`python scripts/dist.py FOLDER [URL]`: build the sdist, the wheel and the archive of the kubectl
plugin into FOLDER, with the packages of this environment (no index is asked). With the URL under
which the release's files will be, also krew's manifest of the plugin.

They are built from a copy, because a build leaves files in the tree, and from the files that git
tracks, so that nothing else gets in.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = "kubectl-topolog"
CAVEATS = """\
* Needs Python 3.9 or newer, kubectl 1.26 or newer, and the right to exec in Topolog's namespace.
* Completion of pods and nodes needs a second name of the plugin on your PATH:
  ln -s ~/.krew/bin/kubectl-topolog ~/.krew/bin/kubectl_complete-topolog
"""


def main(folder: str, url: str = "") -> None:
    out = Path(folder).resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="topolog-dist-") as name:
        tree = Path(name)
        for file in tracked():
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, tree / file)
        for build in ("build_sdist", "build_wheel"):
            code = f"from setuptools import build_meta; build_meta.{build}({str(out)!r})"
            subprocess.run([sys.executable, "-c", code], cwd=tree, check=True, stdout=sys.stderr)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    archive = out / f"{PLUGIN}-{project['version']}.tar.gz"
    archive.write_bytes(plugin_archive())
    if url:
        text = yaml.safe_dump(krew_manifest(project, archive, url), sort_keys=False)
        (out / "topolog.yaml").write_text(text, encoding="utf-8")
    for made in sorted(out.iterdir()):
        print(os.path.relpath(made))


def plugin_archive() -> bytes:
    """Return the plugin, one file, and the license; the same bytes for the same files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, file in ((PLUGIN, "services/cli/kubectl_plugin.py"), ("LICENSE", "LICENSE")):
            content = (ROOT / file).read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if name == PLUGIN else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)


def krew_manifest(project: dict[str, str], archive: Path, url: str) -> dict[str, object]:
    """Return krew's manifest of the plugin, which its index or `--manifest` takes."""
    systems = {"key": "os", "operator": "In", "values": ["darwin", "linux"]}
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "topolog"},
        "spec": {
            "version": f"v{project['version']}",
            "homepage": url,
            "shortDescription": "Show why pods wait, and on which NUMA zones they are",
            "description": project["description"],
            "caveats": CAVEATS,
            "platforms": [
                {
                    "selector": {"matchExpressions": [systems]},
                    "uri": f"{url.rstrip('/')}/{archive.name}",
                    "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                    "bin": PLUGIN,
                    "files": [{"from": name, "to": "."} for name in (PLUGIN, "LICENSE")],
                }
            ],
        },
    }


def tracked() -> list[str]:
    """Return the files that git tracks and that still exist, without tests."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    names = listed.stdout.decode().split("\0")
    return [name for name in names if name and _is_shipped(name)]


def _is_shipped(name: str) -> bool:
    return not name.startswith(("tests/", ".")) and (ROOT / name).is_file()


if __name__ == "__main__":
    main(*sys.argv[1:])
