"""Categories: indicators that are recognised, columns of codes, the units of their levels, and what users may name."""

import warnings

import numpy as np
import pandas as pd
import pytest

import posteriori as po
from posteriori import kernels
from posteriori.gp.categories import CategoryColumns, category_places, indicator_blocks
from posteriori.gp.inputs import InputUnits

RNG = np.random.default_rng(0)
N = 120
CODES = RNG.integers(0, 4, N)
NUMBER = RNG.normal(size=N)
LEVELS = np.eye(4)[CODES]
Y = np.where(np.isin(CODES, (0, 2)), (NUMBER > 0).astype(int), 2)
TABLE = np.column_stack([NUMBER, CODES])
ENCODED = np.column_stack([NUMBER, LEVELS])


# Indicators


@pytest.mark.parametrize(
    ("X", "blocks"),
    [
        (ENCODED, [0, 1, 1, 1, 1]),
        (np.column_stack([LEVELS, LEVELS[::-1]]), [0, 0, 0, 0, 1, 1, 1, 1]),
        (np.column_stack([CODES == 1, NUMBER]), [0, 1]),  # one indicator alone is an ordinary column
        (LEVELS[:, :3], [0, 1, 2]),  # in some rows none is 1
        (
            np.column_stack([LEVELS[:, :2], NUMBER, LEVELS[:, 2:]]),
            [0, 1, 2, 3, 4],
        ),  # levels of a category are neighbours
        (2.0 * LEVELS, [0, 1, 2, 3]),
        (np.ones((5, 2)), [0, 1]),
        (np.column_stack([CODES < 2, CODES >= 2, CODES % 2 == 0, CODES % 2 == 1]), [0, 0, 1, 1]),
    ],
    ids=["one", "two", "single", "not all levels", "apart", "not 0 and 1", "constant", "two levels each"],
)
def test_indicators_of_one_category_are_recognised(X, blocks):
    np.testing.assert_array_equal(indicator_blocks(np.asarray(X, dtype=float)), blocks)


def test_two_rows_are_as_far_apart_by_a_category_as_by_a_number():
    """In the mean square over all pairs of rows: 2, whatever the number of levels and their frequencies."""
    units = InputUnits.of(ENCODED, np.ones(N))
    Z = units(ENCODED)
    apart = ((Z[:, None] - Z[None]) ** 2).mean(axis=(0, 1))
    assert apart[0] == pytest.approx(2.0)
    assert apart[1:].sum() == pytest.approx(2.0)
    assert len(set(units.spread[1:])) == 1
    np.testing.assert_array_equal(units.blocks, [0, 1, 1, 1, 1])


def test_numbers_far_from_zero_beside_a_category_keep_their_units():
    far = np.column_stack([1e6 + 20.0 * NUMBER, LEVELS])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        units = InputUnits.of(far, np.ones(N))
    assert units.spread[0] == pytest.approx(20.0 * NUMBER.std())
    np.testing.assert_allclose(units.spread[1:], InputUnits.of(ENCODED, np.ones(N)).spread[1:], rtol=1e-12)


def test_units_of_weighted_rows_are_those_of_repeated_ones():
    c = RNG.integers(1, 4, N)
    weighted, repeated = InputUnits.of(ENCODED, c), InputUnits.of(np.repeat(ENCODED, c, axis=0), np.ones(c.sum()))
    np.testing.assert_allclose(weighted.spread, repeated.spread, rtol=1e-12)


def test_without_categories_there_are_no_blocks():
    assert InputUnits.of(RNG.normal(size=(9, 3)), np.ones(9)).blocks is None


# Columns of codes


def test_codes_become_indicators_and_back():
    columns = CategoryColumns.of(TABLE, np.array([1]))
    np.testing.assert_array_equal(columns.expanded(TABLE), ENCODED)
    np.testing.assert_array_equal(columns.collapsed(ENCODED), TABLE)
    np.testing.assert_array_equal(columns.origin, [0, 1, 1, 1, 1])
    unseen = columns.expanded(np.array([[0.5, 9.0]]))
    np.testing.assert_array_equal(unseen, [[0.5, 0, 0, 0, 0]])


@pytest.mark.parametrize(
    ("given", "places"), [("b", [1]), (["c", "a"], [0, 2]), (1, [1]), ([2, 0], [0, 2]), ([False, True, True], [1, 2])]
)
def test_categories_are_named_in_several_ways(given, places):
    np.testing.assert_array_equal(category_places(given, 3, ["a", "b", "c"]), places)


def test_no_categories_may_be_named_whether_columns_have_names_or_not():
    assert len(category_places([], 3, None)) == len(category_places([], 3, ["a", "b", "c"])) == 0


@pytest.mark.parametrize(
    ("given", "names", "message"),
    [
        ("b", None, "X has no names: give their places"),
        (["b", "z"], ["a", "b"], r"\['z'\], and X has no such columns"),
        ([2], ["a", "b"], "places from 0 to 1"),
        ([-1], ["a", "b"], "places from 0 to 1"),
        ([0.5], ["a", "b"], "places from 0 to 1"),
    ],
)
def test_wrong_categories_are_named(given, names, message):
    with pytest.raises(ValueError, match=message):
        category_places(given, 2, names)


# Fits


@pytest.fixture(scope="module")
def fits():
    by_codes = po.GPClassifier(categorical_features=[1], random_state=0).fit(TABLE, Y)
    return by_codes, po.GPClassifier(random_state=0).fit(ENCODED, Y)


def test_codes_and_their_indicators_are_the_same_model(fits):
    by_codes, by_indicators = fits
    np.testing.assert_allclose(by_codes.predict_proba(TABLE), by_indicators.predict_proba(ENCODED), atol=1e-12)
    assert by_codes.log_evidence_ == pytest.approx(by_indicators.log_evidence_, abs=1e-9)


def test_attributes_have_one_entry_for_each_feature(fits):
    by_codes, by_indicators = fits
    assert by_codes.n_features_in_ == 2
    relevances = by_indicators.relevances_
    np.testing.assert_allclose(by_codes.relevances_, [relevances[0], relevances[1:].max()])
    assert by_codes.lengthscales_.shape == (2,)
    inputs = by_codes.inducing_inputs_
    assert inputs.shape[1] == 2
    assert set(inputs[:, 1]) == {0, 1, 2, 3}


def test_a_table_names_its_categories(fits):
    frame = pd.DataFrame({"number": NUMBER, "colour": CODES})
    model = po.GPClassifier(categorical_features="colour", random_state=0).fit(frame, Y)
    np.testing.assert_allclose(model.predict_proba(frame), fits[0].predict_proba(TABLE), atol=1e-12)


def test_a_level_that_was_not_seen_is_less_certain(fits):
    model = fits[0]
    seen, unseen = model.predict_proba([[1.5, 1.0]])[0], model.predict_proba([[1.5, 9.0]])[0]
    assert unseen.max() < seen.max()


def test_a_kernel_of_features_serves_all_levels():
    kernel = kernels.RBF(lengthscale=[1.0, 2.0])
    model = po.GPClassifier(kernel, categorical_features=[1], max_iter=0).fit(TABLE, Y)
    np.testing.assert_allclose(model.kernel_.lengthscale, [1.0, 2.0, 2.0, 2.0, 2.0], rtol=1e-12)


def test_stored_models_keep_their_levels(fits, tmp_path):
    po.save(fits[0], tmp_path / "codes.model")
    stored = po.load(tmp_path / "codes.model")
    np.testing.assert_array_equal(stored.predict_proba(TABLE), fits[0].predict_proba(TABLE))


def test_categories_of_the_encoder_are_recognised():
    frame = pd.DataFrame({"number": NUMBER, "colour": np.array(["red", "blue", "green", "grey"])[CODES]})
    encoded = po.TableEncoder(min_frequency=1).fit_transform(frame)
    assert indicator_blocks(encoded.to_numpy()).max() == 1


def test_a_wrong_category_leaves_nothing_fitted():
    model = po.GPClassifier(categorical_features=[5])
    with pytest.raises(ValueError, match="places from 0 to 1"):
        model.fit(TABLE, Y)
    assert not hasattr(model, "classes_")
