"""The models that are served, by name and version, and their files, which may change while they are served.

A changed file is loaded and tried beside the model that serves; only then does the new one take its place. A file that
cannot be loaded leaves the old one serving.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Lock

from posteriori.decision.utility import Utility
from posteriori.parameters import first_names
from posteriori.serve.errors import Refusal
from posteriori.serve.served_model import ServedModel, served
from posteriori.storage import load

__all__ = ["ModelFile", "Shelf", "model_files"]

_log = logging.getLogger("posteriori.serve")
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass
class ModelFile:
    """A file with a model, and what it was like when it was last looked at.

    Attributes
    ----------
    path : Path
    name : str
    version : str or None
        The version that the user has given; None makes one of the content.
    seen : tuple
        Size, time and number of the file that was last loaded, or that could not be.
    serving : str or None
        The version that is served.
    """

    path: Path
    name: str
    version: str | None = None
    seen: tuple[int, ...] = ()
    serving: str | None = None

    def stamp(self) -> tuple[int, ...]:
        """What changes when the file changes; empty if there is none."""
        try:
            info = os.stat(self.path)
        except OSError:
            return ()
        return info.st_size, info.st_mtime_ns, info.st_ino

    def load(self, utility: Utility | None) -> ServedModel:
        """The model in the file, tried with a typical row."""
        self.seen = self.stamp()
        model = load(self.path)
        version = self.version or sha256(self.path.read_bytes()).hexdigest()[:12]
        found = served(self.name, version, model, utility)
        found.warm_up()
        return found


@dataclass
class Shelf:
    """Served models by name; of several versions the last is the one that is asked if no version is named.

    Attributes
    ----------
    models : dict of str to dict of str to ServedModel
    files : list of ModelFile
    utility : Utility or None
        In place of the models' own.
    told : function of the name of a model and whether it failed, or None
        Hears of every file that is loaded again.
    """

    models: dict[str, dict[str, ServedModel]] = field(default_factory=dict)
    files: list[ModelFile] = field(default_factory=list)
    utility: Utility | None = None
    told: Callable[[str, bool], None] | None = None
    _turn: Lock = field(default_factory=Lock)

    def put(self, model: ServedModel, replaced: str | None = None) -> None:
        """Serve a model; `replaced` is a version that it takes the place of."""
        before = self.models.get(model.name, {})
        versions = {(model.version if v == replaced else v): m for v, m in before.items()}  # in the same place
        self.models = self.models | {model.name: versions | {model.version: model}}  # readers see all of it or nothing

    def get(self, name: str | None = None, version: str | None = None) -> ServedModel:
        """The model of this name; the name may be left out where there is one."""
        models = self.models
        if name is None:
            if len(models) != 1:
                raise Refusal(f"Several models are served: name one of {first_names(models)} (?model=NAME).")
            name = next(iter(models))
        if name not in models:
            raise Refusal(f"There is no model {name[:100]!r}: the models are {first_names(models)}.", status=404)
        versions = models[name]
        if version is None:
            return next(reversed(versions.values()))
        if version not in versions:
            known = first_names(versions)
            raise Refusal(f"Model {name!r} has no version {version[:100]!r}: the versions are {known}.", status=404)
        return versions[version]

    def latest(self) -> list[ServedModel]:
        """The models that are asked where no version is named."""
        return [next(reversed(versions.values())) for versions in self.models.values()]

    def load_all(self) -> None:
        """Load every file; raise if one cannot be loaded."""
        for file in self.files:
            self._put_file(file)

    def changed(self) -> list[ModelFile]:
        """Files that are not what they were when they were last looked at; a file that is gone has not changed."""
        return [file for file in self.files if (stamp := file.stamp()) and stamp != file.seen]

    def reload(self, files: Sequence[ModelFile] | None = None) -> None:
        """Load these files again, or all; a file that cannot be loaded leaves its model as it is.

        One file is loaded at a time, whoever asks: of two that were loaded together one could lose its place.
        """
        for file in self.files if files is None else files:
            self._reload(file)

    def _reload(self, file: ModelFile) -> None:
        with self._turn:
            try:
                model = self._put_file(file)
            except Exception as error:  # whatever is in the file: the old model goes on
                self._tell(file.name, failed=True)
                _log.error("reload failed", extra={"model": file.name, "reason": f"{type(error).__name__}: {error}"})
            else:
                self._tell(file.name, failed=False)
                _log.info("reloaded", extra={"model": model.name, "version": model.version})

    def _tell(self, name: str, *, failed: bool) -> None:
        if self.told is not None:
            self.told(name, failed)

    def _put_file(self, file: ModelFile) -> ServedModel:
        model = file.load(self.utility)
        self.put(model, replaced=file.serving)
        file.serving = model.version
        return model


def model_files(given: Sequence[str]) -> list[ModelFile]:
    """The files that a command names: FILE, NAME=FILE or NAME@VERSION=FILE; without a name it is that of the file.

    >>> [(file.name, file.version) for file in model_files(["fits/penguins.model", "birds@2=other.model"])]
    [('penguins', None), ('birds', '2')]
    """
    files = [_model_file(text) for text in given]
    told = [(file.name, file.version) for file in files]
    twice = [name for name, version in told if told.count((name, version)) > 1]
    if twice:
        raise ValueError(
            f"Several models are called {twice[0]!r}: give each its own name or version, such as "
            f"{twice[0]}@2={files[-1].path}."
        )
    return files


def _model_file(text: str) -> ModelFile:
    label, mark, path = text.partition("=")
    if not mark or os.path.exists(text):
        return ModelFile(Path(text), _name_of(Path(text)))
    name, _, version = label.partition("@")
    if not name or not path:
        raise ValueError(f"{text!r} names no model: write FILE, NAME=FILE or NAME@VERSION=FILE.")
    return ModelFile(Path(path), _checked(name), _checked(version) if version else None)


def _name_of(path: Path) -> str:
    """The name of a file without its last suffix, in characters that an address may have."""
    return _FOREIGN.sub("-", path.stem) or "model"


def _checked(name: str) -> str:
    if _FOREIGN.search(name):
        raise ValueError(f"{name!r} cannot be a name or a version: use letters, digits, and . _ - only.")
    return name
