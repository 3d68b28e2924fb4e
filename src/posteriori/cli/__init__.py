"""The command line: arguments in, readable words out."""

from posteriori.cli.app import app

__all__ = ["app"]
