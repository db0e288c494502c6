"""What a simulated pod cannot do, said clearly: no container runs, so there is no log, no shell, no
port.
"""

from __future__ import annotations

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.core.refusals import not_found, refuse
from services.simulator.api.http.responses import Answer, refusal_answer, text_answer
from services.simulator.api.http.routes import Target

SUBRESOURCES = ("log", "exec", "attach", "portforward")


def answer(store: ClusterStore, target: Target) -> Answer:
    """Answer a log request with one line, which says that no container runs. Refuse exec and the
    others with the same words.
    """
    if store.get("pods", target.name, target.namespace) is None:
        return refusal_answer(not_found(target.kind, target.name))
    key = f"{target.namespace}/{target.name}"
    words = f"{key} is simulated: no container runs in it"
    if target.subresource == "log":
        return text_answer(
            200, f"{words}, so it logs nothing. Its story: topolog replay explain {key}\n"
        )
    return refusal_answer(
        refuse(501, f"{words}, so there is nothing to {target.subresource}", "NotImplemented")
    )
