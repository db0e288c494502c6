"""`replay at` as one value."""

from __future__ import annotations

from typing import Any

from services.replay.state_at import state_at
from shared.eventlog.port import EventLog


async def whole_state(log: EventLog, moment: str, node: str = "") -> dict[str, Any]:
    """Return the ledger at a moment with its nodes."""
    parts = state_at(log, moment, node)
    return await anext(parts) | {"nodes": [part async for part in parts]}
