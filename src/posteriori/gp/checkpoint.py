"""A fit under way, kept in one file of plain arrays, so that it can go on after an interruption."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posteriori.files import replacing
from posteriori.gp.ascent import Position

__all__ = ["Checkpoint"]


class Checkpoint:
    """Where a climb is kept, and of which fit it is.

    Parameters
    ----------
    path : path
        Written to a temporary name beside it and renamed: never half a file.
    fingerprint : str
        Of settings and data; a file of another fit is refused.
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        self.path, self.fingerprint = Path(path), fingerprint

    def save(self, state: Any, position: Position) -> None:
        """Write a state and how far the climb had come."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
        head = json.dumps({"fingerprint": self.fingerprint, **position._asdict()})
        named: dict[str, Any] = {f"leaf_{i}": leaf for i, leaf in enumerate(leaves)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as temporary, temporary.open("wb") as file:
            np.savez(file, head=np.array(head), **named)

    def load(self, like: Any) -> tuple[Any, Position] | None:
        """The state and position kept, or None if there is no file; `like` has the shape of the state.

        Raises
        ------
        ValueError
            If the file is of another fit, or no checkpoint.
        """
        if not self.path.exists():
            return None
        leaves, tree = jax.tree.flatten(like)
        try:
            with np.load(self.path, allow_pickle=False) as kept:
                head = json.loads(str(kept["head"]))
                fingerprint = head.pop("fingerprint")
                arrays = [kept[f"leaf_{i}"] for i in range(len(kept.files) - 1)]
            position = Position(**{**head, "since": tuple(head["since"])})
        except (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"checkpoint={str(self.path)!r} is no checkpoint of a fit ({error}): remove it.") from None
        if fingerprint != self.fingerprint or [a.shape for a in arrays] != [leaf.shape for leaf in leaves]:
            raise ValueError(
                f"checkpoint={str(self.path)!r} belongs to another fit, of other rows or settings: remove it, or "
                "choose another path."
            )
        return jax.tree.unflatten(tree, [jax.numpy.asarray(a) for a in arrays]), position

    def remove(self) -> None:
        """Forget it: the fit has ended."""
        self.path.unlink(missing_ok=True)
