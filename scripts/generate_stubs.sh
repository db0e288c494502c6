#!/bin/sh
# Makes the messages of the kubelet's podresources API and of the Container Runtime Interface in Python again. Needs the `dev` extra.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-.venv/bin/python}"
for proto in services/exporter/podresources/podresources.proto services/exporter/cri/cri.proto; do
    "$python" -m grpc_tools.protoc -I . --python_out=. --pyi_out=. "$proto"
    echo "wrote the messages of $proto"
done
