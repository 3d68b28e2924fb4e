"""What a request may say beside its rows: the model, and the options of `asked`, in the address or in the body."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from posteriori.serve.bodies import json_value
from posteriori.serve.desk import options_of

__all__ = ["IN_ADDRESS", "OPTIONS", "options_in_address", "utility_of_text"]

OPTIONS = ("answers", "level", "utility", "new_levels")
"""Those of `asked`."""
IN_ADDRESS = ("model", "version", *OPTIONS)


def options_in_address(request: Request) -> dict[str, Any]:
    """The options in the address, each once."""
    found = options_of(request, IN_ADDRESS)
    if "utility" in found:
        found["utility"] = utility_of_text(found["utility"])
    return found


def utility_of_text(text: str) -> Any:
    """The value of JSON that stands for a utility where only text can be sent."""
    return json_value(text.encode("utf-8", "surrogatepass"))
