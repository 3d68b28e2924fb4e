"""The commands of the documentation, by curl."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pandas as pd
import pytest

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")


def curl(*arguments: str) -> Any:
    found = subprocess.run(["curl", "--silent", "--show-error", *arguments], capture_output=True, check=True)
    return json.loads(found.stdout)


def test_tensors(server: Any, rows: pd.DataFrame, said: dict[str, Any]) -> None:
    """Without a Content-Type curl says that it sends a form."""
    first = said["rows"][0]
    tensors = [
        {
            "name": name,
            "datatype": "BYTES" if isinstance(value, str) else "FP64",
            "shape": [1],
            "data": [value],
        }
        for name, value in first.items()
    ]
    body = json.dumps({"id": "42", "inputs": tensors})
    found = curl(f"{server.url}/v2/models/penguins/infer", "-d", body)
    assert found["id"] == "42"
    assert found["outputs"][0]["data"] == said["class"][:1]
    assert found["outputs"][1]["data"] == said["proba"][0]


def test_scoring(alone: Any, rows: pd.DataFrame, said: dict[str, Any], tmp_path: Any) -> None:
    header = ("-H", "Content-Type: application/json")
    body = json.dumps({"dataframe_records": said["rows"]})
    assert curl(f"{alone.url}/invocations", *header, "-d", body) == {"predictions": said["class"]}
    table = tmp_path / "rows.csv"
    rows.to_csv(table, index=False)
    header = ("-H", "Content-Type: text/csv")
    found = curl(f"{alone.url}/invocations?answers=class", *header, "--data-binary", f"@{table}")
    assert [row["prediction"] for row in found["predictions"]] == said["class"]
