#!/bin/sh
# Generates the Python messages of the kubelet's podresources API. Needs the `dev` extra.
set -eu
cd "$(dirname "$0")/.."
proto=services/exporter/podresources/podresources.proto
"${PYTHON:-.venv/bin/python}" -m grpc_tools.protoc -I . --python_out=. --pyi_out=. "$proto"
echo "wrote the messages of $proto"
