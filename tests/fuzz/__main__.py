"""`python -m tests.fuzz DOOR --inputs N --seed S`: exit code 1 with the input when a door breaks;
DOOR is a name, or `all`.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.doors import DOORS
from tests.fuzz.runner import Finding, run


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code: 0 without a finding, 1 with one, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        epilog="\n".join(f"{name:18} {door.says}" for name, door in DOORS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("door", choices=["all", *DOORS], help="which door, or all")
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument(
        "--seed", type=int, default=None, help="the same seed makes the same inputs"
    )
    parser.add_argument("--file", type=Path, help="send this one input again")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else secrets.randbelow(2**32)
    for door in DOORS.values() if options.door == "all" else [DOORS[options.door]]:
        if options.file is not None:
            door.enter(options.file.read_bytes())
            continue
        begun_s = time.monotonic()
        finding = run(door, options.inputs, seed)
        if finding is not None:
            _show(finding, seed)
            return 1
        print(
            (
                f"{door.name}: {options.inputs} inputs of seed {seed} borne in "
                f"{time.monotonic() - begun_s:.0f} s"
            ),
            flush=True,
        )
    return 0


def _show(finding: Finding, seed: int) -> None:
    kept = (
        Path(tempfile.mkdtemp(prefix="topolog-fuzz-")) / f"{finding.door}-{seed}-{finding.number}"
    )
    kept.write_bytes(finding.data)
    print(f"{finding.door}: input {finding.number} of seed {seed}: {finding.problem}")
    print(f"the input ({len(finding.data)} bytes) begins {finding.data[:300]!r}")
    print(f"  again: python -m tests.fuzz {finding.door} --file {kept}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
