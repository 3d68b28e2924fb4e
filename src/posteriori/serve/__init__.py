"""Models that other programs can ask over HTTP, and a page for people."""

try:
    from posteriori.serve.application import app
    from posteriori.serve.guard import Limits
except ModuleNotFoundError as error:
    raise ImportError(
        f"The server needs {error.name}, which is not installed: pip install 'posteriori[serve]'."
    ) from None

__all__ = ["Limits", "app"]
