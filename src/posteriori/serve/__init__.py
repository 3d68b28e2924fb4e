"""Models that other programs can ask over HTTP, and a page for people."""

from posteriori.serve.application import app
from posteriori.serve.guard import Limits

__all__ = ["Limits", "app"]
