"""Write spans as JSON lines to a file of bounded size, with one older generation. Never blocks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

_encode = msgspec.json.Encoder(enc_hook=str).encode


class FileSpanExporter(SpanExporter):
    """Appends to `path`. At `max_bytes` the file becomes `<path>.1` and a new one begins."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._lock = threading.Lock()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        lines = b"".join(_encode(_plain(span)) + b"\n" for span in spans)
        try:
            with self._lock:
                self._rotate(len(lines))
                with self._path.open("ab") as file:
                    file.write(lines)
        except OSError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def _rotate(self, more_bytes: int) -> None:
        if self._path.exists() and self._path.stat().st_size + more_bytes > self._max_bytes:
            self._path.replace(self._path.with_name(self._path.name + ".1"))


def _plain(span: ReadableSpan) -> dict[str, object]:
    context = span.get_span_context()
    return {
        "name": span.name,
        "trace": f"{context.trace_id:032x}" if context else "",
        "span": f"{context.span_id:016x}" if context else "",
        "parent": f"{span.parent.span_id:016x}" if span.parent else "",
        "start_ns": span.start_time,
        "end_ns": span.end_time,
        "service": span.resource.attributes.get("service.name", ""),
        "status": span.status.status_code.name,
        "attributes": dict(span.attributes or {}),
    }
