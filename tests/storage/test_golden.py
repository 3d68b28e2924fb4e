"""Files of every format version there was are read, and predict what they did: the promise of docs/storage.md."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.storage.cases import rows_of

from posteriori.exceptions import UnseenLevelWarning
from posteriori.storage import describe, load
from posteriori.storage.format import FORMAT

FOLDER = Path(__file__).parent / "golden"
FILES = sorted(FOLDER.glob("format-*/*.safetensors"))


def test_there_are_files_of_every_version() -> None:
    for version in range(1, FORMAT + 1):
        assert len(list(FOLDER.glob(f"format-{version}/*.safetensors"))) == 13


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_predictions(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert describe(path)["class"] == expected["class"]
    model = load(path)
    rows = rows_of(path.stem)
    assert type(model).__name__ == expected["class"]
    np.testing.assert_allclose(model.predict_proba(rows), expected["probabilities"], rtol=0, atol=1e-12)
    assert model.predict(rows).tolist() == expected["predictions"]


@pytest.mark.parametrize("path", [path for path in FILES if path.stem == "table"], ids=lambda path: path.parent.name)
def test_an_encoding_of_an_older_version_has_nothing_to_tell(path: Path) -> None:
    encoder = load(path)[0]
    assert encoder.keep == ()
    assert set(encoder.describe()["note"]) == {""}
    rows = rows_of("table").assign(colour="never seen")
    with pytest.warns(
        UnseenLevelWarning, match="Column 'colour' holds levels that did not occur in the fit, in 10 rows"
    ):
        encoder.transform(rows)
