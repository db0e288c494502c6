#!/bin/sh
# Make the project importable in a virtual environment, with its commands, without a build: a build
# needs setuptools, which is a development tool. `make install` replaces this by an editable install.
set -eu
venv=$1
root=$(cd "$(dirname "$0")/.." && pwd)
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$root" > "$site/topolog.pth"
command() {
    # Processes that a command starts import its file again, so it must run `main` only as a command.
    printf '#!%s\nimport sys\nfrom %s import %s\nif __name__ == "__main__":\n    sys.exit(%s())\n' \
        "$(cd "$venv/bin" && pwd)/python" "$2" "$3" "$3" > "$venv/bin/$1"
    chmod 0755 "$venv/bin/$1"
}
command topolog services.cli.main main
command topolog-exporter services.exporter.command main
command kubectl-topolog services.cli.kubectl_plugin main
command kubectl_complete-topolog services.cli.kubectl_plugin complete
