"""`python scripts/build_kernel.py [--required]`: compile the scheduler's kernel for this Python.

Standard library only, because the image's build runs it before anything is installed. Without a C
compiler, or without Python's headers, Topolog works and decides more slowly: then this says so and
succeeds, except with `--required`.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "services" / "scheduler" / "snapshot" / "_kernel.c"
# Any later Python loads it, too.
MODULE = SOURCE.with_suffix(".abi3.so")
COMPILERS = "cc", "gcc", "clang"


def main(required: bool) -> int:
    problem = build()
    if problem:
        print(f"no compiled kernel: {problem}; Topolog decides in plain Python", file=sys.stderr)
    return 1 if problem and required else 0


def build() -> str:
    """Build the module; return why that is impossible, "" if it was done."""
    compiler = _compiler()
    headers = sysconfig.get_path("include")
    if not compiler:
        return "no C compiler is installed"
    if not (Path(headers) / "Python.h").exists():
        return f"Python's headers are not in {headers}"
    made = MODULE.with_suffix(f".{os.getpid()}")
    system = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    flags = ["-O3", "-fPIC", "-shared", *system, f"-I{headers}"]
    try:
        command = [*compiler, *flags, "-o", str(made), str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{compiler[0]} failed:\n{done.stderr}"
        made.replace(MODULE)
    except OSError as error:
        return str(error)
    finally:
        made.unlink(missing_ok=True)
    return ""


def _compiler() -> list[str]:
    wanted = shlex.split(os.environ.get("CC", ""))
    if wanted:
        return wanted
    return next(([name] for name in COMPILERS if shutil.which(name)), [])


if __name__ == "__main__":
    sys.exit(main("--required" in sys.argv[1:]))
