"""The binder with a Kubernetes API that accepts every call at once, at the port: no HTTP."""

from __future__ import annotations

import sys
from typing import Any

from services.binder import service
from shared.kube.port import Answer, Object
from shared.kube.rights import Right
from shared.runtime import lean


class AcceptingKube:
    """What the binder asks of the Kubernetes API (`shared.kube.port`)."""

    def __init__(self, _kubeconfig: str) -> None:
        self._accepted = Answer(201)

    async def may(self, _right: Right) -> Answer:
        return Answer(201, body={"status": {"allowed": True}})

    async def bind(self, *_call: Any) -> Answer:
        return self._accepted

    async def patch_pod_status(self, _namespace: str, _name: str, _patch: Object) -> Answer:
        return self._accepted

    async def create_event(self, _namespace: str, _event: Object) -> Answer:
        return self._accepted

    async def close(self) -> None:
        pass


if __name__ == "__main__":
    lean.leave_out_what_is_optional()
    setattr(service, "KubeClient", AcceptingKube)  # noqa: B010
    sys.exit(service.main())
