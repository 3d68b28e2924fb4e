"""Warnings and errors of posteriori: each kind of trouble has a class of its own, to be filtered or caught."""

from sklearn.exceptions import ConvergenceWarning

__all__ = [
    "ApproximationWarning",
    "ClassOrderWarning",
    "ColumnWarning",
    "ConvergenceWarning",
    "SeparationWarning",
    "SingularError",
    "SingularWarning",
    "StorageError",
    "StorageWarning",
    "UnseenLevelWarning",
    "WeightWarning",
]


class SeparationWarning(ConvergenceWarning):
    """Some classes can be told apart without error, so that no finite maximum-likelihood estimate exists."""


class ApproximationWarning(UserWarning):
    """A posterior was approximated badly: its predictions or its weights are not to be trusted as they stand."""


class ClassOrderWarning(UserWarning):
    """Columns of probabilities were matched with states by their places, and classifiers have another order."""


class WeightWarning(UserWarning):
    """Weights are read as numbers of rows, and do not look like such: posteriors would be far too narrow."""


class SingularWarning(UserWarning):
    """A covariance has no inverse: too few rows for its features, or a feature that is constant within a class."""


class ColumnWarning(UserWarning):
    """Columns of a table that deserve a look: they give the target away, are dropped, or hold infinite numbers.

    Attributes
    ----------
    columns : tuple of str
        All columns that it is about; the message may name only the first of them.
    finding : str
        What was found, the same for all of them.
    """

    def __init__(self, message: str = "", columns: tuple[str, ...] = (), finding: str = "") -> None:
        super().__init__(message, columns, finding)
        self.columns, self.finding = columns, finding

    def __str__(self) -> str:
        return str(self.args[0])


class UnseenLevelWarning(UserWarning):
    """Rows to be encoded hold levels of a category that did not occur in the fit.

    Attributes
    ----------
    column : str
    levels : tuple of str
        Some of these levels.
    n_rows : int
        Rows that hold such a level.
    """

    def __init__(self, message: str = "", column: str = "", levels: tuple[str, ...] = (), n_rows: int = 0) -> None:
        super().__init__(message, column, levels, n_rows)
        self.column, self.levels, self.n_rows = column, levels, n_rows

    def __str__(self) -> str:
        return str(self.args[0])


class SingularError(ValueError):
    """A matrix that must have an inverse has none, so far as numbers of 16 digits can tell."""


class StorageError(ValueError):
    """A file does not hold a model that can be read: it is damaged, of another kind, or from a newer version."""


class StorageWarning(UserWarning):
    """A model was read from a file, but may not predict what it did: other versions of libraries wrote it."""
