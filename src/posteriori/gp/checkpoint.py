"""Checkpoints of a long fit: a file of plain arrays that keeps it, so that it can go on after an interruption."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posteriori.files import replacing
from posteriori.gp.trees import leaves, rebuilt

__all__ = ["FIRST_JITTER", "Checkpoint", "Position"]

FIRST_JITTER = 1e-6
"""What is added to the diagonal of K_zz at first, in units of its mean."""


class Position(NamedTuple):
    """Where an ascent stands, apart from its state: all that it needs to go on."""

    n_steps: int
    rate: float
    n_cuts: int = 0
    since: tuple[float, ...] = ()
    """The energies of the chunks since the last cut."""
    n_before: int = 0
    """The number of chunks between the last two cuts."""
    jitter: float = FIRST_JITTER


class Checkpoint:
    """An unfinished ascent in one file of plain arrays, from which it can go on after an interruption.

    Parameters
    ----------
    path : path
        The file is written under a temporary name beside it and renamed, so that it is never half a file.
    fingerprint : str
        A digest of settings and data; the file of another fit is refused.
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        self.path, self.fingerprint = Path(path), fingerprint

    def save(self, state: Any, position: Position) -> None:
        """Write a state and the position of its ascent."""
        arrays = [np.asarray(leaf) for leaf in leaves(state)]
        head = json.dumps({"fingerprint": self.fingerprint, **position._asdict()})
        named: dict[str, Any] = {f"leaf_{i}": leaf for i, leaf in enumerate(arrays)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as temporary, temporary.open("wb") as file:
            np.savez(file, head=np.array(head), **named)

    def load(self, like: Any) -> tuple[Any, Position] | None:
        """The saved state and position, or None if there is no file; `like` has the shape of the state.

        Raises
        ------
        ValueError
            If the file belongs to another fit, or is not a checkpoint.
        """
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as saved:
                head = json.loads(str(saved["head"]))
                fingerprint = head.pop("fingerprint")
                arrays = [saved[f"leaf_{i}"] for i in range(len(saved.files) - 1)]
            position = Position(**{**head, "since": tuple(head["since"])})
        except (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"checkpoint={str(self.path)!r} is not the checkpoint of a fit ({error}): remove it."
            ) from None
        if fingerprint != self.fingerprint or [a.shape for a in arrays] != [np.shape(leaf) for leaf in leaves(like)]:
            raise ValueError(
                f"checkpoint={str(self.path)!r} belongs to another fit, of other rows or settings: remove it, or "
                "choose another path."
            )
        return rebuilt(like, arrays), position

    def remove(self) -> None:
        """Remove the file: the fit has ended."""
        self.path.unlink(missing_ok=True)
