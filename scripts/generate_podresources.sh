#!/bin/sh
# Makes the Python stubs of the kubelet's podresources API again from podresources.proto. Needs the `dev` extra.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-.venv/bin/python}"
folder=services/exporter/podresources
"$python" -m grpc_tools.protoc -I . --python_out=. --pyi_out=. --grpc_python_out=. "$folder/podresources.proto"
echo "wrote $folder/podresources_pb2.py, podresources_pb2.pyi and podresources_pb2_grpc.py"
