#!/bin/sh
# Generates the Python messages of the kubelet's podresources API and of NRI. Needs the `dev` extra.
set -eu
cd "$(dirname "$0")/.."
for proto in services/exporter/podresources/podresources.proto services/agent/nri/nri.proto; do
    "${PYTHON:-.venv/bin/python}" -m grpc_tools.protoc -I . --python_out=. --pyi_out=. "$proto"
    echo "wrote the messages of $proto"
done
