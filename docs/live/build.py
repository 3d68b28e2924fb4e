"""The live page: a model as an ONNX graph, what the page must know of it, the runtime, the components of the report.

`build(folder)` fills a folder that any web server can serve.
"""

from __future__ import annotations

import json
import lzma
import re
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.pipeline import make_pipeline

import posteriori as po

HERE = Path(__file__).parent
OWN = ("index.html", "live.js", "live.css")
SHARED = ("charts.js", "decide.js", "drawing.js", "elements.js", "utility_table.js")
LEVEL = 0.95
FEATURES = ("flipper_length_mm", "body_mass_g", "sex")
NAMES = {"flipper_length_mm": "Flipper length (mm)", "body_mass_g": "Body mass (g)", "sex": "Sex"}
_LIGHT = re.compile(r":root \{\n  color-scheme: light dark;\n(.*?)\n\}", re.DOTALL)
_DARK = re.compile(r"@media \(prefers-color-scheme: dark\) \{\n  :root \{\n(.*?)\n  \}\n\}", re.DOTALL)


def penguins() -> pd.DataFrame:
    """The bundled penguins, as far as the page shows them."""
    return pd.read_csv(str(files("posteriori") / "tables" / "bundled" / "penguins.csv"))[["species", *FEATURES]]


def fitted() -> Any:
    """The model of the page."""
    return make_pipeline(po.TableEncoder(), po.BayesianSoftmaxRegression()).fit(penguins(), "species")


def described(model: Any) -> dict[str, Any]:
    """What the page must know: inputs with their ranges, classes, utilities to begin with."""
    table, classes = penguins(), model.classes_.tolist()
    inputs: list[dict[str, Any]] = []
    for name in FEATURES:
        column = table[name].dropna()
        known = {"name": name, "label": NAMES[name]}
        if column.dtype.kind in "if":
            step = 1 if column.max() < 1000 else 10
            inputs.append(known | {"low": int(column.min()), "high": int(column.max()), "step": step})
        else:
            inputs.append(known | {"levels": sorted(column.unique())})
    utility = po.Utility.zero_one(model.classes_).with_reject(0.8, "measure the bill")
    return {
        "classes": classes,
        "inputs": inputs,
        "start": {"flipper_length_mm": 198, "body_mass_g": 3900, "sex": "female"},
        "level": LEVEL,
        "utility": {"states": classes, "actions": utility.actions.tolist(), "matrix": utility.matrix.tolist()},
    }


def build(folder: Path) -> None:
    """Write everything that the page needs into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in OWN:
        shutil.copy(HERE / name, folder / name)
    shared = files("posteriori") / "reports" / "page"
    for name in SHARED:
        (folder / name).write_text((shared / name).read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "style.css").write_text(
        _with_themes((shared / "style.css").read_text(encoding="utf-8")), encoding="utf-8"
    )
    vendored = HERE / "vendored"
    shutil.copy(vendored / "ort.wasm.bundle.min.mjs", folder / "ort.mjs")
    packed = vendored / "ort-wasm-simd-threaded.wasm.xz"
    (folder / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    shutil.copy(vendored / "LICENSE", folder / "onnxruntime-LICENSE.txt")
    model = fitted()
    po.to_onnx(model, folder / "penguins.onnx", interval=LEVEL)
    (folder / "model.json").write_text(json.dumps(described(model), indent=1), encoding="utf-8")


def _with_themes(style: str) -> str:
    """The style with its light and dark colours chosen by data-theme too: the site has a switch for them."""
    light, dark = _LIGHT.search(style), _DARK.search(style)
    if light is None or dark is None:
        raise ValueError("style.css no longer has its colours in the form that is looked for here.")
    return (
        f'{style}\n:root[data-theme="light"] {{\n  color-scheme: light;\n{light[1]}\n}}\n'
        f':root[data-theme="dark"] {{\n  color-scheme: dark;\n{dark[1]}\n}}\n'
    )
