"""Targets: labels, probabilities or counts, read as a distribution over classes and a weight for every row.

With Y_nk the target and c_n the weight of row n, every target is brought to one form,

    c_n <- c_n sum_k Y_nk,    Y_nk <- Y_nk / sum_j Y_nj,

which leaves c_n Y_nk, all that a likelihood sees of them, as it was. So counts are weighted soft labels, and
a hard label is a row of Y with a single one, kept as its index.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import DataConversionWarning

from posteriori.parameters import first_names
from posteriori.rows.matrices import as_array, is_table, open_table, table_matrix

__all__ = ["Target", "class_factors", "class_set", "classes_of", "classes_of_call", "label_array", "read_target"]


LARGEST_WEIGHT = 1e50
"""Weights of rows between one over this and this are taken: their sums and squares stay numbers."""


@dataclass(frozen=True)
class Target:
    """The classes of N rows, and their weights; exactly one of codes and probs is set.

    Attributes
    ----------
    classes : ndarray, (K,)
        Sorted, at least two.
    codes : ndarray of intp, (N,), or None
        Hard labels, as indices into `classes`.
    probs : ndarray of float64, (N, K), or None
        Soft labels Y, in the order of `classes`; rows sum to one.
    weights : ndarray of float64, (N,), or None
        Row weights c_n >= 0; None when all are one.
    """

    classes: np.ndarray
    codes: np.ndarray | None
    probs: np.ndarray | None
    weights: np.ndarray | None

    def one_hot(self, rows: Any) -> np.ndarray:
        """Y of some rows, (n, K): one-hot or soft, as given."""
        if self.codes is None:
            assert self.probs is not None
            return self.probs[rows]
        return np.eye(len(self.classes))[self.codes[rows]]

    @property
    def values(self) -> np.ndarray | None:
        """Y as kernels read it: codes (N,) of labels, or probabilities (N, K)."""
        return self.probs if self.codes is None else self.codes

    @property
    def n_counted(self) -> int:
        """Rows of positive weight; of soft labels each that is not zero."""
        if self.codes is None:
            assert self.probs is not None
            return int(np.count_nonzero(self.probs if self.weights is None else self.probs[self.weights > 0]))
        return len(self.codes) if self.weights is None else int(np.count_nonzero(self.weights))


def read_target(
    y: Any, *, n_rows: int, classes: Any = None, sample_weight: Any = None, class_weight: Any = None
) -> Target:
    r"""Read labels, soft labels or counts, with their weights (docs/theory.md, section 1).

    Weights multiply: c_n is the sample weight times, for a class weight w_k, \sum_k Y_nk w_k, and Y_nk w_k is
    normalised again. A row whose Y sums to zero says nothing: its weight is zero, its Y uniform.

    Parameters
    ----------
    y : labels (N,), or soft labels or counts (N, K) with K >= 2
        From any library: arrays, series, tables, lists, scipy.sparse. Never modified.
    n_rows : int
        Rows of X.
    classes : sequence of labels, or None
        Every class there is, those without rows included; for an (N, K) target also the order of its columns,
        whose classes are otherwise the table's column names, or 0..K-1.
    sample_weight : number, (N,) numbers, or None
    class_weight : mapping from class to number (1 for those left out), "balanced", or None
        "balanced" is \sum_j m_j / (K' m_k) with m_k the weighted count of class k and K' the number of
        classes with m_k > 0, as in scikit-learn; the other classes get 1.

    Returns
    -------
    Target

    Raises
    ------
    ValueError
        If y is missing, incomplete, continuous, of another length than X, or of one class only; if a label is
        not declared; if weights are negative, not finite, all zero, or of a wrong shape.

    Examples
    --------
    >>> target = read_target(["b", "a", "b"], n_rows=3)
    >>> target.classes, target.codes
    (array(['a', 'b'], dtype='<U1'), array([1, 0, 1]))
    >>> counts = read_target([[3, 1], [0, 2]], n_rows=2)
    >>> counts.probs, counts.weights
    (array([[0.75, 0.25], [0.  , 1.  ]]), array([4., 2.]))
    """
    if y is None:
        raise ValueError(
            "This classifier requires y to be passed, but the target y is None: pass a label for every row."
        )
    values, names = _read_values(y)
    if len(values) != n_rows:
        raise ValueError(
            f"X and y have inconsistent numbers of samples: X has {n_rows} rows, y has {len(values)}; "
            "pass one label for every row of X."
        )
    weights = _read_sample_weight(sample_weight, n_rows)
    codes = probs = None
    if values.ndim == 1:
        class_labels, codes = classes_of(values, classes)
        if class_weight is not None:
            mass = np.bincount(codes, weights, minlength=len(class_labels))
            factors = class_factors(class_weight, class_labels, mass)[codes]
            weights = factors if weights is None else weights * factors
    else:
        class_labels, Y = _read_soft_labels(values, names, classes)
        weights, probs = _normalise(weights, Y)
        if class_weight is not None:
            factors = class_factors(class_weight, class_labels, weights @ probs)
            weights, probs = _normalise(weights, probs * factors)

    if weights is not None:
        _require_size(weights)
        if not weights.any():
            raise ValueError(
                "Every row has weight zero: the product of sample_weight, class_weight and, for an (n, K) "
                "target, the sum of the row must be positive for at least one row."
            )
        if (weights == 1).all():
            weights = None
    return Target(class_labels, codes, probs, weights)


def label_array(y: Any) -> np.ndarray:
    """One label for every row, (N,), of the dtype that `classes_` gets; raises if labels are missing or continuous.

    Examples
    --------
    >>> label_array(np.array([2, 0], dtype=object))
    array([2, 0])
    """
    values, _ = _read_values(y)
    if values.ndim != 1:
        raise ValueError(f"y should be a 1d array of labels, got an array of shape {values.shape} instead.")
    labels, codes = _factorise(values, argument="y")
    return labels[codes]


def class_set(classes: Any) -> np.ndarray:
    """Sort declared classes.

    Parameters
    ----------
    classes : sequence of labels

    Returns
    -------
    ndarray, (K,)

    Raises
    ------
    ValueError
        If there is no class, a label is missing or declared twice, types are mixed, or classes is not a vector.

    Examples
    --------
    >>> class_set(["Gentoo", "Adelie"])
    array(['Adelie', 'Gentoo'], dtype='<U6')
    """
    values = _declared(classes)
    labels, codes = _factorise(values, argument="classes")
    if len(labels) < len(values):
        twice = labels[np.bincount(codes) > 1]
        raise ValueError(f"classes declares {first_names(twice.tolist(), 5)} more than once: declare each class once.")
    return labels


def classes_of_call(known: np.ndarray | None, given: Any, default: Any) -> Any:
    """The classes for a call of `partial_fit`: those known from earlier calls, else given with it, else `default`.

    Raises if the given classes differ from those that are known.
    """
    if known is None:
        return default if given is None else given
    if given is not None and list(np.unique(given)) != list(known):
        raise ValueError(
            f"classes={list(given)!r} differ from those of the first call, {list(known)!r}: pass the same ones, or "
            "None."
        )
    return known


def _read_values(y: Any) -> tuple[np.ndarray, list[Any] | None]:
    """Labels (N,) or numbers (N, K) as an array, with the names of the K columns if y is a table."""
    names: list[Any] | None = None
    if sp.issparse(y):
        values = y.toarray()
    elif is_table(y):
        table = open_table(y, argument="y")
        names = table.columns
        single = len(names) == 1
        values = as_array(table[names[0]].to_native())[:, None] if single else table_matrix(table, argument="y")
    else:
        values = _as_labels(y)
    if values.ndim == 2 and values.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. "
            "Please change the shape of y to (n_samples,), for example with y.ravel().",
            DataConversionWarning,
            stacklevel=4,
        )
        values, names = values.ravel(), None
    if values.ndim not in (1, 2) or 0 in values.shape:
        raise ValueError(
            f"y has shape {values.shape}, and y should be a 1d array of labels, or (n_samples, n_classes) "
            "probabilities or counts."
        )
    return values, names


def _as_labels(labels: Any) -> np.ndarray:
    """An array of labels as they are: NumPy would turn the 1 and the NaN of ["a", 1, nan] into strings."""
    try:
        values = as_array(labels)
    except ValueError as error:
        raise ValueError(f"y must be labels, or rows of equal length: {error}") from error
    if values.dtype.kind in "US" and isinstance(labels, (list, tuple)) and {*map(type, labels)} - {str, np.str_}:
        values = np.asarray(labels, dtype=object)
    return values


def _declared(classes: Any) -> np.ndarray:
    """Declared classes as a vector, in the order given."""
    values = _as_labels(classes)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"classes must be a list of labels, such as ['a', 'b'], got {classes!r}.")
    return values


def classes_of(values: np.ndarray, classes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Sorted classes, at least two, and for every label its index among them."""
    labels, codes = _factorise(values, argument="y")
    if classes is None:
        _require_two(labels, given="y holds")
        return labels, codes
    declared = class_set(classes)
    _require_two(declared, given="classes declares")
    index = _index(declared)
    unknown = [label for label in labels.tolist() if label not in index]
    if unknown:
        raise ValueError(
            f"y holds {first_names(unknown, 5)}, not among the declared classes {first_names(declared.tolist(), 5)}: "
            "declare every class, or correct the labels."
        )
    return declared, np.array([index[label] for label in labels.tolist()], dtype=np.intp)[codes]


def _require_two(classes: np.ndarray, *, given: str) -> None:
    if len(classes) < 2:
        raise ValueError(
            f"{given} one class only ({classes.tolist()[0]!r}): a classifier needs at least two; "
            "declare the others with classes=[...]."
        )


def _factorise(values: np.ndarray, *, argument: str) -> tuple[np.ndarray, np.ndarray]:
    """Sorted distinct labels, and for every label its index among them."""
    kind = values.dtype.kind
    if kind in "biu":
        return _factorise_integers(values)
    if kind == "f":
        _require_integral(values, argument=argument)
        return _unique(values)
    if kind in "mM":
        _raise_if_missing(np.isnat(values), argument=argument)
        return _unique(values)
    if kind in "US":
        return _factorise_hashed(values.tolist(), values.dtype)
    if kind in "OT":
        return _factorise_objects(values.tolist(), argument=argument)
    if kind == "c":
        raise ValueError(f"Complex data not supported: {argument} has dtype {values.dtype}, pass labels.")
    raise ValueError(f"Unknown label type: {argument} has dtype {values.dtype}, pass numbers or strings.")


def _unique(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    labels, codes = np.unique(values, return_inverse=True)
    return labels, codes.astype(np.intp, copy=False)


def _factorise_integers(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`_factorise` of integers or booleans: by counting where their range is small, without a sort."""
    low = values.min()
    span = int(values.max()) - int(low) + 1
    if span > max(1024, len(values)):
        return _unique(values)
    # Modular arithmetic: the offset is right even where a label does not fit a signed integer.
    offsets = np.subtract(values, low, dtype=np.intp, casting="unsafe")
    present = np.zeros(span, dtype=bool)
    present[offsets] = True
    labels = np.zeros(span, dtype=values.dtype)
    labels[offsets] = values
    return labels[present], (np.cumsum(present, dtype=np.intp) - 1)[offsets]


def _factorise_hashed(values: list[Any], dtype: np.dtype | type) -> tuple[np.ndarray, np.ndarray]:
    """`_factorise` of strings and other hashable labels: only the distinct ones are sorted."""
    labels = sorted(set(values))
    index = {label: k for k, label in enumerate(labels)}
    codes = np.fromiter(map(index.__getitem__, values), dtype=np.intp, count=len(values))
    return np.fromiter(labels, dtype=dtype, count=len(labels)), codes


def _factorise_objects(values: list[Any], *, argument: str) -> tuple[np.ndarray, np.ndarray]:
    """`_factorise` of Python objects: strings stay objects, numbers become an array of numbers."""
    types = set(map(type, values))
    if types != {str}:
        _raise_if_missing(np.fromiter(map(_is_missing, values), dtype=bool, count=len(values)), argument=argument)
    numbers = (bool, int, float, np.bool_, np.integer, np.floating)
    if all(issubclass(each, numbers) for each in types):
        array = np.array(values)
        if array.dtype.kind in "biuf":
            return _factorise(array, argument=argument)
    try:
        return _factorise_hashed(values, object)
    except TypeError:
        names = ", ".join(sorted(each.__name__ for each in types))
        raise ValueError(
            f"Unknown label type: {argument} holds labels of type {names}, which cannot be sorted: "
            "use numbers or strings, of one type."
        ) from None


def _is_missing(label: Any) -> bool:
    """Whether the label is None, NaN, or a missing value of pandas (known by name, without pandas)."""
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(label, (float, np.floating)) and bool(np.isnan(label))


def _raise_if_missing(missing: np.ndarray, *, argument: str) -> None:
    if missing.any():
        count = int(missing.sum())
        labels = "label" if count == 1 else "labels"
        raise ValueError(
            f"{argument} has {count} missing {labels}, the first in row {missing.argmax()} (counted from 0): "
            "remove rows without a label."
        )


def _require_integral(values: np.ndarray, *, argument: str) -> None:
    """Raise unless every float is a whole number: other values are measurements, not labels."""
    _raise_if_missing(np.isnan(values), argument=argument)
    integral = np.isfinite(values) & (values == np.rint(values))
    if not integral.all():
        n = int(integral.argmin())
        kind = "continuous" if np.isfinite(values[n]) else "infinity"
        raise ValueError(
            f"Unknown label type: {kind}. {argument} holds {float(values[n])!r} in row {n} (counted from 0), "
            "and a classifier needs labels: whole numbers, strings, or bins of the continuous value."
        )


def _read_soft_labels(values: np.ndarray, names: list[Any] | None, classes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Sorted classes, and the (N, K) target as a new float64 array in their order, not yet normalised."""
    K = values.shape[1]
    if values.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: y has dtype {values.dtype}, pass labels.")
    try:
        Y = values.astype(np.float64) if values.dtype.kind in "biufO" else None
    except (TypeError, ValueError):
        Y = None
    if Y is None:
        raise ValueError(
            f"y has {K} columns of dtype {values.dtype}, and several columns must be the probabilities or "
            "counts of the classes: pass numbers, or labels as a 1d array."
        )
    bad = ~(np.isfinite(Y) & (Y >= 0))
    if bad.any():
        n, k = divmod(int(bad.argmax()), K)
        raise ValueError(
            f"y holds {float(Y[n, k])!r} in row {n}, column {k} (counted from 0): "
            "probabilities and counts must be finite and not negative."
        )

    columns = _column_classes(K, names, classes)
    labels = class_set(columns)
    index = _index(labels)
    order = np.empty(K, dtype=np.intp)
    order[[index[label] for label in columns.tolist()]] = np.arange(K)
    return labels, Y[:, order]


def _column_classes(K: int, names: list[Any] | None, classes: Any) -> np.ndarray:
    """The class of each column of an (N, K) target: as declared, as named by the table, or numbered."""
    if classes is None:
        return np.arange(K) if names is None else _declared(names)
    declared = _declared(classes)
    if len(declared) != K:
        raise ValueError(
            f"y has {K} columns, but classes declares {len(declared)}: {first_names(declared.tolist(), 5)}; "
            "declare one class for each column, in the order of the columns."
        )
    if names is not None and names != declared.tolist() and set(names) == set(declared.tolist()):
        raise ValueError(
            f"The columns of y are named {first_names(names, 5)}, but classes declares them in the order "
            f"{first_names(declared.tolist(), 5)}: declare them in the order of the columns, or leave classes out."
        )
    return declared


def _normalise(weights: np.ndarray | None, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Move the row sums from Y to the weights, so that c_n Y_nk stays; a row of zeros becomes uniform."""
    N, K = Y.shape
    totals = Y.sum(axis=1)
    empty = totals == 0
    probs = np.divide(Y, totals[:, np.newaxis], out=np.full((N, K), 1 / K), where=~empty[:, np.newaxis])
    # Rows meant to sum to one should not become weights because of rounding.
    totals[np.abs(totals - 1) <= K * np.finfo(np.float64).eps] = 1
    return (totals if weights is None else weights * totals), probs


def _read_sample_weight(sample_weight: Any, n_rows: int) -> np.ndarray | None:
    """A weight for every row, or None."""
    if sample_weight is None:
        return None
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight must be a number, or a number for every row of X: {error}") from None
    if weights.ndim == 0:
        weights = np.full(n_rows, weights)
    if weights.ndim != 1:
        raise ValueError(
            f"Sample weights must be 1D array or scalar, got {weights.ndim}D array: "
            f"pass a number, or an array of {n_rows} numbers."
        )
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight.shape == {weights.shape}, expected {(n_rows,)}! Pass one weight for every row."
        )
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        n = int(bad.argmax())
        raise ValueError(
            f"sample_weight is {float(weights[n])!r} in row {n} (counted from 0): "
            "weights must be finite and not negative; weight zero leaves a row out."
        )
    return weights


def _require_size(weights: np.ndarray) -> None:
    """Raise if sums of these weights, or one over them, are beyond the range of numbers."""
    largest = float(weights.max(initial=0.0))
    if largest > LARGEST_WEIGHT or 0.0 < largest < 1.0 / LARGEST_WEIGHT:
        raise ValueError(
            f"The largest weight of a row is {largest:.3g}: it must be between {1.0 / LARGEST_WEIGHT:g} and "
            f"{LARGEST_WEIGHT:g}. Multiply sample_weight (or the counts of y, or class_weight) by a number that brings "
            "it there; a weight of 1 counts a row once."
        )


def class_factors(class_weight: Any, classes: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """The weight of each class; mass is the weighted count of each, sum_n c_n Y_nk."""
    factors = np.ones(len(classes))
    if isinstance(class_weight, str) and class_weight == "balanced":
        present = mass > 0
        factors[present] = mass.sum() / (present.sum() * mass[present])
        return factors
    if not isinstance(class_weight, Mapping):
        raise ValueError(f"class_weight must be 'balanced', None or a dict from class to weight, got {class_weight!r}.")
    index = _index(classes)
    unknown = [label for label in class_weight if label not in index]
    if unknown:
        raise ValueError(
            f"class_weight names {first_names(unknown, 5)}, not among the classes {first_names(classes.tolist(), 5)}: "
            "use the classes as keys."
        )
    for label, weight in class_weight.items():
        if not (isinstance(weight, (int, float, np.number)) and 0 <= weight < np.inf):
            raise ValueError(
                f"class_weight is {weight!r} for class {label!r}: weights must be finite and not negative."
            )
        factors[index[label]] = weight
    return factors


def _index(classes: np.ndarray) -> dict[Any, int]:
    """Position of each class."""
    return {label: k for k, label in enumerate(classes.tolist())}
