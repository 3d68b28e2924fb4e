"""Files of every format version there was are read, and predict what they did: the promise of docs/storage.md."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.storage.cases import rows_of

from posteriori.storage import describe, load
from posteriori.storage.format import FORMAT

FOLDER = Path(__file__).parent / "golden"
FILES = sorted(FOLDER.glob("format-*/*.safetensors"))


def test_there_are_files_of_every_version() -> None:
    for version in range(1, FORMAT + 1):
        assert len(list(FOLDER.glob(f"format-{version}/*.safetensors"))) == 10


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_predictions(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert describe(path)["class"] == expected["class"]
    model = load(path)
    rows = rows_of(path.stem)
    assert type(model).__name__ == expected["class"]
    np.testing.assert_allclose(model.predict_proba(rows), expected["probabilities"], rtol=0, atol=1e-12)
    assert model.predict(rows).tolist() == expected["predictions"]
