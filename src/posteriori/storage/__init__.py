"""Models in files: safetensors with a header of JSON, never pickle. Reading a file executes nothing that is in it."""

from posteriori.storage.models import describe, load, save

__all__ = ["describe", "load", "save"]
