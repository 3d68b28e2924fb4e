"""ONNX graphs of models that begin with a TableEncoder: a messy table in, the probabilities of Python out."""

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, StandardScaler
from tests.storage.cases import rows_of
from tests.storage.test_golden import FOLDER

import posteriori as po

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.filterwarnings("ignore")

N = 240
UTILITY = po.Utility([[1, 0, 0.4], [0, 1, 0.4], [-3, 1, 0.4]], ["a", "b", "c"], ["pick", "leave", "ask"])


def messy(seed=0):
    """Columns of each kind, with gaps, rare levels, and names that collide with those of the graph."""
    rng = np.random.default_rng(seed)
    k = rng.integers(0, 3, N)
    start = pd.Timestamp("2021-03-01 12:30")
    table = pd.DataFrame(
        {
            "number": rng.normal(k),
            "add_1": rng.normal(size=N) * 1e3,
            "label": rng.integers(0, 9, N),
            "flag": rng.random(N) < 0.3 + 0.2 * k,
            "asked": np.where(rng.random(N) < 0.2, None, rng.random(N) < 0.5),
            "island": rng.choice(["Dream", "Biscoe", "Torgersen", "é\n\"'"], N),
            "sex": rng.choice(["f", "m"], N),
            "gone": np.where(rng.random(N) < 0.5, None, "here"),
            "rare": [f"level {n % 70}" if n % 3 else "often" for n in range(N)],
            "seen": start + pd.to_timedelta(rng.integers(-(10**9), 10**9, N), unit="s"),
            "when": start.tz_localize("Europe/Berlin") + pd.to_timedelta(rng.integers(0, 10**8, N), unit="s"),
            "took": pd.to_timedelta(rng.integers(0, 9999, N), unit="s"),
            "id": np.arange(N),
            "kind": np.array(["a", "b", "c"])[k],
        }
    )
    table.loc[rng.random(N) < 0.1, ["number", "took"]] = None
    table.loc[rng.random(N) < 0.1, ["island", "seen"]] = None
    return table


def new_rows():
    """Rows with levels never seen, gaps where the fit had none, infinite numbers, and empty text."""
    table = messy(1)
    table.loc[3, "island"] = "never seen"
    table.loc[4, ["sex", "add_1", "when"]] = None
    table.loc[5, ["sex", "gone", "rare"]] = "never seen"
    table.loc[6, "number"] = np.inf
    table.loc[7, ["island", "sex", "rare"]] = ""
    return table.drop(columns=["kind", "id"])


def session(model, **options):
    quiet = onnxruntime.SessionOptions()
    quiet.intra_op_num_threads = 1
    quiet.log_severity_level = 3
    return onnxruntime.InferenceSession(po.to_onnx(model, **options), quiet, providers=["CPUExecutionProvider"])


def ran(model, table, **options):
    runtime = session(model, **options)
    values = runtime.run(None, po.onnx_inputs(runtime, table))
    return dict(zip([output.name for output in runtime.get_outputs()], values, strict=True))


MODELS = {
    "softmax": po.SoftmaxRegression(),
    "bayes": po.BayesianSoftmaxRegression(),
    "kronecker": po.BayesianSoftmaxRegression(posterior="kronecker", predictive="probit"),
    "gaussian": po.GaussianClassifier(),
    "gaussian diagonal": po.GaussianClassifier("diagonal"),
    "mle": po.GaussianClassifier("tied", estimate="map"),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_the_probabilities_of_python(model):
    pipeline = make_pipeline(po.TableEncoder(), model).fit(messy(), "kind")
    for table in (messy(), new_rows()):
        found = ran(pipeline, table)
        np.testing.assert_allclose(found["probabilities"], pipeline.predict_proba(table), rtol=0, atol=1e-11)
        np.testing.assert_array_equal(found["label"], pipeline.predict(table))


def test_classifiers_around_a_pipeline():
    X, y = messy().drop(columns="kind"), messy()["kind"]
    inner = make_pipeline(po.TableEncoder(), StandardScaler(), po.SoftmaxRegression())
    inner.set_output(transform="pandas")
    calibrated = po.CalibratedClassifier(inner, cv=2).fit(X, y)
    np.testing.assert_allclose(
        ran(calibrated, new_rows())["probabilities"], calibrated.predict_proba(new_rows()), atol=1e-12
    )
    deciding = po.UtilityClassifier(inner, UTILITY).fit(X, y)
    np.testing.assert_array_equal(ran(deciding, new_rows())["action"], deciding.predict(new_rows()))


def test_what_is_stored_can_be_exported(tmp_path):
    pipeline = make_pipeline(po.TableEncoder(keep=["id"]), po.SoftmaxRegression()).fit(messy(), "kind")
    po.save(pipeline, tmp_path / "m.model")
    loaded = po.load(tmp_path / "m.model")
    assert loaded[0].keep == ["id"]
    assert loaded[0].encoding_ == pipeline[0].encoding_
    rows = new_rows().assign(id=np.arange(N))
    np.testing.assert_allclose(ran(loaded, rows)["probabilities"], pipeline.predict_proba(rows), atol=1e-12)


def encoded_by_graph(encoder, table):
    """What a graph makes of a table before a model sees it: with the identity as weights, logits are features."""
    from posteriori.storage.onnx_graph import Graph
    from posteriori.storage.onnx_tables import TableInputs

    graph = Graph()
    inputs = TableInputs(graph, encoder.encoding_, {"E"})
    graph.output(inputs.encoded(), "E")
    D = len(encoder.encoding_.names)
    info = [onnx.helper.make_tensor_value_info("E", onnx.TensorProto.DOUBLE, ["n", D])]
    proto = graph.model("encoder", inputs.infos(np.dtype("float64")), info, 18)
    onnx.helper.set_model_props(proto, {"inputs": inputs.described()})
    onnx.checker.check_model(proto, full_check=True)
    runtime = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return runtime.run(None, po.onnx_inputs(runtime, table))[0]


def test_the_features_of_python():
    encoder = po.TableEncoder().fit(messy(), "kind")
    for table in (messy(), new_rows()):
        expected = encoder.transform(table.drop(columns="kind", errors="ignore"))
        np.testing.assert_allclose(encoded_by_graph(encoder, table), expected, rtol=1e-12, atol=1e-9)


def test_every_day_of_a_century_and_days_of_eight():
    rng = np.random.default_rng(0)
    every, some = np.arange("1980", "2080", dtype="M8[D]"), np.arange("1599-12-31", "2401", dtype="M8[D]")[::31]
    days = np.concatenate([every, some]).astype("M8[us]")
    days = days + rng.integers(0, 86_400_000_000, len(days)).astype("m8[us]")
    table = pa.table({"t": days})
    encoder = po.TableEncoder().fit(table)
    assert len(encoder.get_feature_names_out()) == 7
    expected = encoder.transform(table).to_pandas().to_numpy()
    np.testing.assert_allclose(encoded_by_graph(encoder, table), expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("make", [lambda X: X, pl.from_pandas, pa.Table.from_pandas])
def test_tables_of_each_library(make):
    columns = ["number", "island", "flag", "seen"]
    pipeline = make_pipeline(po.TableEncoder(), po.SoftmaxRegression()).fit(messy()[[*columns, "kind"]], "kind")
    rows = new_rows()[columns]
    np.testing.assert_allclose(ran(pipeline, make(rows))["probabilities"], pipeline.predict_proba(rows), atol=1e-12)


def test_the_empty_text_as_a_level():
    """Missing is told from the empty text where that is a level, by another mark."""
    rng = np.random.default_rng(0)
    c = np.array(["", "x", "(missing)", None], dtype=object)[rng.integers(0, 4, 100)]
    table = pd.DataFrame({"c": c, "y": rng.choice(["a", "b"], 100)})
    pipeline = make_pipeline(po.TableEncoder(), po.SoftmaxRegression()).fit(table, "y")
    assert json.loads(session(pipeline).get_modelmeta().custom_metadata_map["inputs"])[0]["missing"] == "(missing)_2"
    np.testing.assert_allclose(ran(pipeline, table)["probabilities"], pipeline.predict_proba(table), atol=1e-12)


def test_inputs_are_described():
    pipeline = make_pipeline(po.TableEncoder(), po.SoftmaxRegression()).fit(messy(), "kind")
    runtime = session(pipeline)
    types = {entry.name: entry.type for entry in runtime.get_inputs()}
    assert types["number"] == types["flag"] == types["seen"] == types["took"] == "tensor(double)"
    assert types["island"] == types["sex"] == "tensor(string)"
    assert "id" not in types
    assert "label_" in types, "an input may not have the name of an output"
    described = {entry["column"]: entry for entry in json.loads(runtime.get_modelmeta().custom_metadata_map["inputs"])}
    assert described["label"]["name"] == "label_"
    assert described["when"]["zone"] == "Europe/Berlin"
    assert described["island"]["missing"] == ""
    narrow = session(pipeline, dtype="float32")
    types = {entry.name: entry.type for entry in narrow.get_inputs()}
    assert (types["number"], types["seen"]) == ("tensor(float)", "tensor(double)")
    P = narrow.run(["probabilities"], po.onnx_inputs(narrow, new_rows()))[0]
    np.testing.assert_allclose(P, pipeline.predict_proba(new_rows()), atol=1e-4)


def test_rows_by_hand_and_no_rows():
    table = pd.DataFrame({"x": [1.0, 2, 4, 7, None] * 9, "c": ["u", "v", "v", None, "u"] * 9, "y": [0, 1, 1, 0, 1] * 9})
    pipeline = make_pipeline(po.TableEncoder(), po.SoftmaxRegression()).fit(table, "y")
    runtime = session(pipeline, opset=onnx.defs.onnx_opset_version() - 3)
    rows = {"x": np.array([[1.0], [np.nan]]), "c": np.array([["v"], [""]], dtype=object)}
    P = runtime.run(["probabilities"], rows)[0]
    expected = pipeline.predict_proba(pd.DataFrame({"x": [1.0, None], "c": ["v", None]}))
    np.testing.assert_allclose(P, expected, atol=1e-14)
    nothing = runtime.run(["probabilities"], {name: values[:0] for name, values in rows.items()})[0]
    assert nothing.shape == (0, 2)


def test_what_cannot_be_exported_or_fed():
    table = messy()[["number", "island", "kind"]]
    labelled = table.drop(columns="kind"), table["kind"]
    long = table.assign(text=np.array(["z" * 300 + "1", "z" * 300 + "2"])[np.arange(N) % 2])
    with pytest.raises(ValueError, match="Column 'text' cannot be exported to ONNX: it has levels of more than 200"):
        po.to_onnx(make_pipeline(po.TableEncoder(), po.SoftmaxRegression()).fit(long, "kind"))
    with pytest.raises(TypeError, match=r"step PowerTransformer.* cannot be exported"):
        po.to_onnx(make_pipeline(po.TableEncoder(), PowerTransformer(), po.SoftmaxRegression()).fit(*labelled))
    pipeline = make_pipeline(po.TableEncoder(), po.SoftmaxRegression()).fit(table, "kind")
    runtime = session(pipeline)
    with pytest.raises(ValueError, match="The table has no column 'island', which the graph needs"):
        po.onnx_inputs(runtime, table[["number"]])
    with pytest.raises(ValueError, match=r"Column 'number' is of kind category .*, and the graph takes number"):
        po.onnx_inputs(runtime, table.assign(number="1"))
    matrix = session(po.SoftmaxRegression().fit(np.eye(3), [0, 1, 2]))
    with pytest.raises(ValueError, match="The graph takes one matrix X"):
        po.onnx_inputs(matrix, table)


def test_columns_without_any_value():
    table = messy()[["number", "island", "seen", "kind"]]
    pipeline = make_pipeline(po.TableEncoder(), po.SoftmaxRegression()).fit(table, "kind")
    rows = pd.DataFrame({"number": [None, None], "island": [None, None], "seen": [None, None]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(ran(pipeline, rows)["probabilities"], pipeline.predict_proba(rows), atol=1e-12)


def test_models_of_an_older_version_can_be_exported():
    model = po.load(next(FOLDER.glob("format-1/table.safetensors")))
    rows = rows_of("table")
    np.testing.assert_allclose(ran(model, rows)["probabilities"], model.predict_proba(rows), atol=1e-12)
