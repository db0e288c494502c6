"""A process that answers podresources with two files: `python -m tests.bench._answering SOCKET LIST
ALLOCATABLE`. A bench then measures the client only.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import grpc
import grpc.aio


async def serve(socket: str, files: dict[str, bytes]) -> None:
    """Answer until cancelled."""

    def answering(data: bytes) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def answer(_request: bytes, _context: object) -> bytes:
            return data

        return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.aio.server()
    methods = {name: answering(data) for name, data in files.items()}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods),)
    )
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    NAMES = ("List", "GetAllocatableResources")
    asyncio.run(
        serve(
            sys.argv[1],
            {name: Path(file).read_bytes() for name, file in zip(NAMES, sys.argv[2:], strict=True)},
        )
    )
