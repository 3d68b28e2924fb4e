"""Real tables become numbers: a scikit-learn transformer for columns of any kind."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from posteriori.parameters import first_names, require_count, require_flag
from posteriori.rows.matrices import collected
from posteriori.tables.feature_blocks import feature_blocks
from posteriori.tables.plans import describe_encoding, plan_encoding
from posteriori.tables.sources import Source, open_source
from posteriori.tables.surprises import warn_of_columns

__all__ = ["TableEncoder"]


class TableEncoder(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Encode a messy table as numbers, in one pass.

    Numbers keep their values, missing ones become the training mean and are marked; categories become one-hot columns,
    rare levels pooled; dates become years, and the time of year, week and day as points on a circle. Constant columns
    and identifiers are dropped. `describe()` says what became of every column; docs/tables.md states the rules.

    Parameters
    ----------
    min_frequency : int, default 5
        A level with fewer rows than this in training is pooled with other such levels to "(other)".
    max_levels : int, default 64
        A category keeps at most this many levels, the most frequent ones (of equally frequent ones the alphabetically
        first); the rest is pooled.
    drop_identifiers : bool, default True
        Whether columns that number or name single rows are dropped: text with more than 50 distinct values that are
        more than half as many as the rows, whole numbers that are all different although they lie close together, and
        columns whose names say so.
    keep : sequence of str, default ()
        Columns that are kept although they look like identifiers.
    carry : sequence of str, default ()
        Columns that are not features and pass untouched, such as weights.

    Attributes
    ----------
    encoding_ : Encoding
        What was learned, as plain values.
    target_ : str or None
        The column that `y` named.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Columns of the table, without the target and carried ones; only after a fit on a table with names of str.

    Notes
    -----
    Output is a table of the library of the input: pandas (with its index), polars or Arrow. An array or a list of rows
    gives an array; a RecordBatchReader gives a RecordBatchReader, encoded while it is read; a pyarrow Dataset gives an
    `EncodedDataset`, which classifiers read pass by pass, and which has `to_batches`, `to_reader` and `to_table`; a
    Dask DataFrame gives one whose partitions are encoded on their workers when they are asked for.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"mass": [3.7, None, 5.1], "sex": ["f", "m", "m"], "species": ["A", "A", "G"]})
    >>> TableEncoder(min_frequency=1).fit_transform(table, "species")
       mass  mass_missing  sex=m species
    0   3.7           0.0    0.0       A
    1   4.4           1.0    1.0       A
    2   5.1           0.0    1.0       G
    """

    def __init__(
        self,
        *,
        min_frequency: int = 5,
        max_levels: int = 64,
        drop_identifiers: bool = True,
        keep: Any = (),
        carry: Any = (),
    ) -> None:
        self.min_frequency = min_frequency
        self.max_levels = max_levels
        self.drop_identifiers = drop_identifiers
        self.keep = keep
        self.carry = carry

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn how each column is encoded.

        Parameters
        ----------
        X : pandas, polars or Arrow table, array, list of rows, pyarrow Dataset or RecordBatchReader, Dask DataFrame
            Datasets and readers are read once, one batch at a time.
        y : str, labels (n,), or anything else
            The name of the target's column, which is not a feature; or the labels of rows in memory. Columns are
            compared with the labels; whatever else it is, it is ignored.

        Returns
        -------
        self

        Warns
        -----
        ColumnWarning
            If columns determine the target, have values (or gaps) in rows of one class only, hold infinite numbers,
            or are dropped as constant or as row numbers.
        """
        require_count("min_frequency", self.min_frequency, 1)
        require_count("max_levels", self.max_levels, 1)
        require_flag("drop_identifiers", self.drop_identifiers)
        source = open_source(X)
        target = y if isinstance(y, str) else None
        keep = _names("keep", self.keep)
        kept_apart = _kept_apart(source, target, _names("carry", self.carry), X)
        _require_columns(source, [("keep", name) for name in keep])
        encoding = plan_encoding(
            source.summaries(skip=kept_apart, target=target if target is not None else _labels(y)),
            min_frequency=self.min_frequency,
            max_levels=self.max_levels,
            drop_identifiers=self.drop_identifiers,
            apart=kept_apart,
            keep=keep,
        )
        # nothing is set before everything is known, so that a failed fit leaves nothing behind
        self.encoding_, self.target_ = encoding, target
        self.n_features_in_ = len(encoding.columns)
        if source.named:
            self.feature_names_in_ = np.array([column.name for column in encoding.columns], dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        warn_of_columns(encoding)
        return self

    def transform(self, X: Any) -> Any:
        """Encode rows.

        Parameters
        ----------
        X : as in fit
            Columns in any order; further ones are ignored, but target and carried columns pass if they are there.

        Returns
        -------
        table, ndarray, RecordBatchReader, EncodedDataset or Dask DataFrame
            Features of float64 without missing values, then the target and the carried columns.

        Raises
        ------
        ValueError
            If columns are absent or hold another kind of values than in the fit, naming all of these.

        Warns
        -----
        UnseenLevelWarning
            If a category holds levels that did not occur in the fit; of a stream when it has been read.
        ColumnWarning
            If numbers are infinite.
        """
        check_is_fitted(self, "encoding_")
        source = open_source(X)
        apart = self.encoding_.apart
        carried = [name for name in apart if name in source.names and not source.positional]
        library = getattr(self, "_sklearn_output_config", {}).get("transform", get_config()["transform_output"])
        return source.encoded(self.encoding_, self._positions(source, apart), carried, library)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit, then transform the same rows; see both.

        A RecordBatchReader can be read only once and is refused.
        """
        arrow = sys.modules.get("pyarrow")
        if arrow is not None and isinstance(X, arrow.RecordBatchReader):
            raise TypeError(
                "X is a RecordBatchReader, which can be read only once, and fit_transform reads twice: pass a "
                "pyarrow Dataset or Table, or fit on one reader and transform another."
            )
        X = collected(X)
        return self.fit(X, y).transform(X)

    def set_output(self, *, transform: str | None = None) -> TableEncoder:
        """Choose the library of the output.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"} or None
            "default" is the library of the input; None leaves the choice as it is. Streams stay Arrow,
            and Dask DataFrames stay what they are.
        """
        if transform is not None:
            if transform not in ("default", "pandas", "polars"):
                raise ValueError(f"transform must be 'default', 'pandas', 'polars' or None, got {transform!r}.")
            self._sklearn_output_config = {"transform": transform}
        return self

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the encoded columns, without target and carried ones.

        Parameters
        ----------
        input_features : array of str, or None
            Names of the input columns; they must be those of the fit.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self, "encoding_")
        if input_features is not None:
            given = list(input_features)
            if len(given) != self.n_features_in_:
                raise ValueError(
                    f"input_features should have length equal to number of features ({self.n_features_in_}), "
                    f"got {len(given)}."
                )
            if hasattr(self, "feature_names_in_") and given != list(self.feature_names_in_):
                raise ValueError(
                    "input_features is not equal to feature_names_in_: pass None, or the names of the fit."
                )
        return np.array(self.encoding_.names, dtype=object)

    def get_feature_blocks_out(self) -> np.ndarray:
        """The block of each encoded column: columns of one block may share the strength of a prior.

        The levels of a category are a block of its name; all numbers are one; docs/tables.md has the others. Models
        that know the names of the columns find these blocks by themselves, with `prior="blocks"`.

        Returns
        -------
        ndarray of str, in the order of `get_feature_names_out`
        """
        check_is_fitted(self, "encoding_")
        return np.array(feature_blocks(self.encoding_.names), dtype=object)

    def describe(self) -> Any:
        """Describe each input column: what was seen in it, and how it is encoded.

        Returns
        -------
        pandas DataFrame, one row per input column
            Columns: kind, dtype, missing (share of rows), values (levels or range), becomes, dropped (the reason), note
            (what else to know, such as that it determines the target).
        """
        import pandas as pd

        check_is_fitted(self, "encoding_")
        return pd.DataFrame(describe_encoding(self.encoding_)).set_index("column")

    def _positions(self, source: Source, apart: tuple[str, ...]) -> dict[str, str]:
        """Names of the fit for given columns, where only their places can match; otherwise nothing."""
        expected = [column.name for column in self.encoding_.columns]
        given = [name for name in source.names if name not in apart or source.positional]
        named = hasattr(self, "feature_names_in_")
        if not source.positional and (named or set(expected) <= set(given)):
            return {}
        own = type(self).__name__
        if len(given) != len(expected):
            raise ValueError(f"X has {len(given)} features, but {own} is expecting {len(expected)} features as input.")
        if named:
            warnings.warn(f"X does not have valid feature names, but {own} was fitted with feature names", stacklevel=3)
        elif source.named:
            warnings.warn(f"X has feature names, but {own} was fitted without feature names", stacklevel=3)
        return dict(zip(given, expected, strict=True))


def _labels(y: Any) -> np.ndarray | None:
    """Labels of rows in memory, (n,); None where y is something else."""
    if y is None or hasattr(y, "__dask_graph__") or not (hasattr(y, "__len__") or hasattr(y, "__array__")):
        return None
    try:
        labels = np.asarray(y)
    except (TypeError, ValueError):
        return None
    return labels if labels.ndim == 1 and len(labels) else None


def _names(argument: str, given: Any) -> tuple[str, ...]:
    """Names of columns, checked to be a sequence of these."""
    names = None if isinstance(given, str) else tuple(given)
    if names is None or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{argument} must be a sequence of column names, such as ['weight'], got {given!r}.")
    return names


def _kept_apart(source: Source, target: str | None, carry: tuple[str, ...], X: Any) -> tuple[str, ...]:
    """Columns that are not features; each must be a column of X."""
    asked = [("y", target)] * (target is not None) + [("carry", name) for name in carry]
    if source.positional and asked:
        argument, name = asked[0]
        raise ValueError(
            f"{argument} names the column {name!r}, but X ({type(X).__name__}) has no named columns: pass X as a "
            "table (pandas, polars or Arrow)."
        )
    _require_columns(source, asked)
    return tuple(dict.fromkeys(name for _, name in asked if name is not None))


def _require_columns(source: Source, asked: list[tuple[str, str | None]]) -> None:
    """Raise unless each name that an argument has is that of a column."""
    for argument, name in asked:
        if name not in source.names:
            raise ValueError(
                f"{argument} names the column {name!r}, and the columns of X are "
                f"{first_names(source.names)}: pass one of these."
            )
