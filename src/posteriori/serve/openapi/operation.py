"""What those who run the server ask, described: GET /metrics and GET /openapi.json."""

from __future__ import annotations

from collections.abc import Sequence

from posteriori.serve.bodies import JSON
from posteriori.serve.openapi.schemas import Described, content
from posteriori.serve.served_model import ServedModel

__all__ = ["described"]


def described(models: Sequence[ServedModel]) -> Described:
    """The paths that tell of the server itself."""
    metrics = {
        "operationId": "metrics",
        "summary": "What has happened since the start, for Prometheus",
        "tags": ["operation"],
        "responses": {
            "200": {"description": "Sums of all workers.", "content": content("text/plain", {"type": "string"})}
        },
    }
    document = {
        "operationId": "openapi",
        "summary": "This document",
        "tags": ["operation"],
        "responses": {"200": {"description": "The document.", "content": content(JSON, {"type": "object"})}},
    }
    return Described({"/metrics": {"get": metrics}, "/openapi.json": {"get": document}})
