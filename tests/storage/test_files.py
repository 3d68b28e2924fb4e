"""Files that are damaged, foreign, hostile or from the future: each has its sentence, none is half written."""

import hashlib
import json
import os
import pickle
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from safetensors.numpy import save as safetensors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.storage.cases import TABLE, X, fitted

import posteriori as po
from posteriori.exceptions import StorageError, StorageWarning
from posteriori.storage import describe, load, save
from posteriori.storage import format as files


@pytest.fixture(scope="module")
def model() -> Any:
    return fitted(po.SoftmaxRegression(), TABLE)


@pytest.fixture
def path(model: Any, tmp_path: Path) -> Path:
    save(model, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def rewritten(path: Path, change: Any) -> Path:
    """The same file after a change of its document or tensors, with a digest that is right."""
    document, tensors = files.read(path)
    del document["sha256"]
    changed = change(document, tensors)
    files.write(path, document if changed is None else changed, tensors)
    return path


def test_cut_short_anywhere(path: Path) -> None:
    data = path.read_bytes()
    for length in (*range(24), *range(24, len(data), 13)):
        path.write_bytes(data[:length])
        with pytest.raises(StorageError):
            load(path)
    path.write_bytes(data[:-1])
    with pytest.raises(StorageError, match="is damaged: its bytes are not those that were written"):
        load(path)
    path.write_bytes(data[:100])
    with pytest.raises(StorageError, match=r"is cut short, .* it has 100 bytes, and its header alone would have"):
        load(path)
    path.write_bytes(data + b"x")
    with pytest.raises(StorageError, match="is damaged"):
        load(path)


def test_any_byte_changed(path: Path) -> None:
    data = path.read_bytes()
    for place in (*range(24), *range(24, len(data), 13)):
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        path.write_bytes(changed)
        with pytest.raises(StorageError):
            load(path)


def test_what_stands_in_the_header_cannot_move_the_digest(tmp_path: Path) -> None:
    trap = '{"sha256":"' + "0" * 64 + '"}'
    model = po.SoftmaxRegression(classes=[trap, "{\\" + trap], class_weight={"sha256": 1.0})
    save(model, tmp_path / "model")
    assert load(tmp_path / "model").classes == model.classes


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it is not in the safetensors format"),
        (b"\x00" * 7, "it is not in the safetensors format"),
        (pickle.dumps({"a": 1}), "it is not in the safetensors format"),
        (b"PK\x03\x04" + b"\x00" * 4 + b"zip", "is cut short, or not a model"),
        (struct.pack("<Q", 2**63) + b"{}", "it is not in the safetensors format"),
        (struct.pack("<Q", 99_000_000) + b"{}", "its header alone would have 99000000"),
        (struct.pack("<Q", 2) + b"{]", "its header is not in JSON"),
        (struct.pack("<Q", 4) + b"null", "its header is not in JSON"),
        (struct.pack("<Q", 4) + b"\xff\xfe\xff\xfe", "its header is not in JSON"),
        (struct.pack("<Q", 10) + b'{"a": NaN}', "its header is not in JSON"),
        (struct.pack("<Q", 2_000_000) + b"[" * 2_000_000, "its header is not in JSON"),
        (struct.pack("<Q", 9_000) + b"9" * 9_000, "its header is not in JSON"),
        (safetensors({"a": np.zeros(2)}), "is a safetensors file, but not a model stored by posteriori"),
        (safetensors({"a": np.zeros(2)}, {"format": "pt"}), "its metadata lacks 'posteriori'"),
        (safetensors({}, {"posteriori": "x"}), "what its header says of the model cannot be read"),
        (safetensors({}, {"posteriori": "{}"}), "what its header says of the model cannot be read"),
        (safetensors({}, {"posteriori": '{"format":0}'}), "what its header says of the model cannot be read"),
        (safetensors({}, {"posteriori": '{"format":true}'}), "what its header says of the model cannot be read"),
        (safetensors({}, {"posteriori": '{"format":1}'}), "its bytes are not those that were written"),
        (safetensors({}, {"posteriori": "[" * 100_000}), "what its header says of the model cannot be read"),
    ],
)
def test_files_that_are_no_models(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(StorageError, match=says) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 400
    if "bytes are not" not in says:
        with pytest.raises(StorageError, match=says):
            describe(path)


def test_a_newer_format_says_to_update(path: Path) -> None:
    rewritten(path, lambda document, _: {**document, "format": 7, "library": "3.2.1"})
    expected = (
        f"{path} was written by posteriori 3.2.1 in format 7. This is posteriori {po.__version__}, which reads up to "
        "format 1: update it."
    )
    for read in (load, describe):
        with pytest.raises(StorageError) as caught:
            read(path)
        assert str(caught.value) == expected


def with_scikit_learn(version: Any, path: Path) -> Path:
    """The same file as another version of scikit-learn would have written it."""
    return rewritten(path, lambda document, _: {**document, "libraries": {"scikit-learn": version}})


def test_objects_of_another_scikit_learn_are_warned_of(tmp_path: Path) -> None:
    scaled = fitted(make_pipeline(StandardScaler(), po.SoftmaxRegression()))
    isotonic = fitted(po.CalibratedClassifier(po.SoftmaxRegression(), method="isotonic", cv=3))
    for model, named in (
        (scaled, "Pipeline, StandardScaler"),
        (isotonic, "CalibratedClassifierCV, IsotonicRegression"),
    ):
        path = tmp_path / "model"
        save(model, path)
        with pytest.warns(StorageWarning) as caught:
            loaded = load(with_scikit_learn("0.24.2", path))
        (warning,) = caught
        assert warning.filename == __file__
        said = str(warning.message)
        assert said.startswith(f"{path} was written with scikit-learn 0.24.2, and this is {sklearn.__version__}: ")
        assert named in said
        assert "pip install 'scikit-learn==0.24.*'" in said
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_a_file_that_another_scikit_learn_cannot_read_has_the_likely_reason_beside_the_error(tmp_path: Path) -> None:
    save(fitted(make_pipeline(StandardScaler(), po.SoftmaxRegression())), tmp_path / "model")

    def change(document: Any, _: Any) -> None:
        document["libraries"] = {"scikit-learn": "9.1.0"}
        document["model"]["params"]["of_the_future"] = True

    path = rewritten(tmp_path / "model", change)
    with (
        pytest.warns(StorageWarning, match=r"written with scikit-learn 9\.1\.0"),
        pytest.raises(StorageError, match="of_the_future"),
    ):
        load(path)


def test_the_same_scikit_learn_and_files_without_its_objects_need_no_warning(path: Path, tmp_path: Path) -> None:
    pipeline = tmp_path / "pipeline"
    save(fitted(make_pipeline(StandardScaler(), po.SoftmaxRegression())), pipeline)
    major_minor = ".".join(sklearn.__version__.split(".")[:2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(with_scikit_learn("0.24.2", path))  # a SoftmaxRegression alone
        load(pipeline)
        load(with_scikit_learn(f"{major_minor}.99", pipeline))
        describe(with_scikit_learn("0.24.2", pipeline))
        for nonsense in (None, 5, ["1"], {}):
            load(with_scikit_learn(nonsense, pipeline))


def test_an_unknown_class_is_named_and_nothing_is_executed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def called(*args: Any) -> None:
        raise AssertionError("executed")

    monkeypatch.setattr(os, "system", called)

    def change(document: dict[str, Any], _: Any) -> None:
        document["class"] = "os.system"
        document["model"] |= {"class": "os.system", "params": {"command": "touch /tmp/x"}, "state": {}}

    with pytest.raises(StorageError, match=r"cannot be read: its class 'os\.system' is unknown to this version"):
        load(rewritten(path, change))


def test_missing_tensors_and_wrong_shapes(path: Path) -> None:
    data = path.read_bytes()

    def missing(document: Any, tensors: Any) -> None:
        del tensors["coef_"]

    def turned(document: Any, tensors: Any) -> None:
        tensors["coef_"] = tensors["coef_"].T.copy()

    def smaller(document: Any, tensors: Any) -> None:
        tensors["coef_"] = np.zeros((3, 2))
        document["model"]["state"]["coef_"]["shape"] = [3, 2]

    def no_model(document: Any, tensors: Any) -> None:
        document["model"] = [1, 2]

    def nonsense(document: Any, tensors: Any) -> None:
        document["model"]["state"]["classes_"] = 5

    def parameters(document: Any, tensors: Any) -> None:
        document["model"]["params"]["alfa"] = 5

    for change, says in (
        (missing, "cannot be read: the tensor 'coef_' is missing."),
        (turned, r"the tensor 'coef_' is float64 of shape \(4, 3\), and float64 of shape \(3, 4\) is needed."),
        (smaller, r"its coefficients have shape \(3, 2\), and there are 3 classes and 4 features."),
        (no_model, "cannot be read: it does not hold a model."),
        (nonsense, "what is in it does not fit together"),
        (parameters, "what is in it does not fit together .*alfa"),
    ):
        path.write_bytes(data)
        with pytest.raises(StorageError, match=says):
            load(rewritten(path, change))


def test_deep_nesting_in_a_document(path: Path) -> None:
    def nest(document: Any, _: Any) -> None:
        inner: Any = 1
        for _ in range(500):
            inner = [inner]
        document["model"] = document["about"] = inner

    rewritten(path, nest)
    for read in (load, describe):
        with pytest.raises(StorageError, match=r"nested too deeply|is damaged"):
            read(path)


def test_parts_made_later_still_raise_storage_errors(tmp_path: Path) -> None:
    golden = Path(__file__).parent / "golden" / "format-1" / "gp.safetensors"
    path = tmp_path / "gp"
    path.write_bytes(golden.read_bytes())

    def change(document: Any, _: Any) -> None:
        document["model"]["state"]["_fitted"]["fields"]["readout"]["fields"]["odd"] = 1

    loaded = load(rewritten(path, change))
    with pytest.raises(StorageError, match="SparseGP has no field 'odd'"):
        loaded.predict_proba(X)


def test_the_header_is_strict_json_that_others_can_read(path: Path) -> None:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    text = json.loads(data[8 : 8 + length])["__metadata__"]["posteriori"]

    def refuse(token: str) -> None:
        raise AssertionError(token)

    document = json.loads(text, parse_constant=refuse)
    digest = document["sha256"]
    assert data.count(digest.encode()) == 1
    assert hashlib.sha256(data.replace(digest.encode(), b"0" * 64)).hexdigest() == digest
    assert document["model"]["params"]["tol"] == 1e-8


def test_the_same_model_gives_the_same_bytes(model: Any, path: Path, tmp_path: Path) -> None:
    save(load(path), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_errors_leave_the_old_file_and_nothing_else(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    with pytest.raises(TypeError):
        save(po.UtilityClassifier(po.SoftmaxRegression(), po.Utility(len, ["a", "b"])), path)

    def fails(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:50])
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", fails)
    with pytest.raises(OSError, match="No space left on device") as caught:
        save(po.SoftmaxRegression(), path)
    assert caught.value.filename == str(path)

    def interrupted(self: Path, data: bytes) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(po.SoftmaxRegression(), path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_places_that_cannot_be_written_or_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        save(po.SoftmaxRegression(), tmp_path / "no" / "model")
    assert caught.value.filename == str(tmp_path / "no" / "model")
    with pytest.raises(OSError, match="not a regular file"):
        save(po.SoftmaxRegression(), tmp_path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")
    with pytest.raises(OSError, match="directory"):
        load(tmp_path)


def test_describe(path: Path, model: Any) -> None:
    told = describe(str(path))
    assert told["class"] == "SoftmaxRegression"
    assert told["fitted"] is True
    assert told["classes"] == ["setosa", "versicolor", "virginica"]
    assert told["features"] == list(TABLE.columns)
    assert told["n_features"] == 4
    assert told["estimators"] == ["SoftmaxRegression"]
    assert told["training"]["status"] == "converged"
    assert told["training"]["objective"] == model.solution_.objective
    assert told["format"] == 1
    assert told["library"] == po.__version__
    assert told["libraries"]["numpy"] == np.__version__


def test_describe_needs_no_tensors(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: 8 + int.from_bytes(data[:8], "little")])
    assert describe(path)["classes"] == ["setosa", "versicolor", "virginica"]


def test_describe_models_around_models(tmp_path: Path) -> None:
    save(po.UtilityClassifier(po.SoftmaxRegression()), tmp_path / "m")
    told = describe(tmp_path / "m")
    assert told["fitted"] is False
    assert told["classes"] is None
    assert told["estimators"] == ["UtilityClassifier", "SoftmaxRegression"]
    save(fitted(po.UtilityClassifier(po.GaussianClassifier("tied"))), tmp_path / "m")
    told = describe(tmp_path / "m")
    assert told["training"]["structure"] == "tied"
    assert told["training"]["class_count"] == [14.0, 13.0, 13.0]
    dates = np.array(["2024-01-01", "2024-02-01"], dtype="datetime64[D]")
    save(po.SoftmaxRegression(classes=dates), tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").classes, dates)
