"""Write the files of this format version that must be readable for ever: `python -m tests.storage.make_golden`.

Run once for each format version. Files that are there are kept: they are what an old version wrote.
"""

import json
from pathlib import Path

from tests.storage.cases import golden, rows_of

from posteriori.storage import save
from posteriori.storage.format import FORMAT

FOLDER = Path(__file__).parent / "golden" / f"format-{FORMAT}"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, model in golden().items():
        path = FOLDER / f"{name}.safetensors"
        if path.exists():
            print(f"{path} is kept")
            continue
        save(model, path)
        rows = rows_of(name)
        expected = {
            "class": type(model).__name__,
            "probabilities": model.predict_proba(rows).tolist(),
            "predictions": model.predict(rows).tolist(),
        }
        path.with_suffix(".json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
