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
    """Some classes can be told apart without error, so that no finite maximum-likelihood estimate exists.

    A prior gives a finite one: `BayesianSoftmaxRegression` chooses its strength, `SoftmaxRegression` takes it as
    `alpha`, and `BayesianSoftmaxRegression("jeffreys")` is Firth's correction of maximum likelihood.

    Examples
    --------
    >>> import warnings
    >>> from posteriori import SoftmaxRegression
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     model = SoftmaxRegression(alpha=0).fit([[0.0], [1.0]], ["a", "b"])
    >>> caught[0].category.__name__, model.solution_.status.name
    ('SeparationWarning', 'SEPARATED')
    """


class ApproximationWarning(UserWarning):
    """A posterior was approximated badly: its predictions or its weights are not to be trusted as they stand.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", ApproximationWarning)  # stop where a posterior cannot be trusted
    ...     warnings.warn("3 of 100 weights ...", ApproximationWarning)
    Traceback (most recent call last):
    posteriori.exceptions.ApproximationWarning: 3 of 100 weights ...
    """


class ClassOrderWarning(UserWarning):
    """Columns of probabilities were matched with states by their places, and classifiers have another order.

    Examples
    --------
    >>> import warnings
    >>> import posteriori as po
    >>> utility = po.Utility([[1, 0], [0, 1]], states=["yes", "no"], actions=["act", "wait"])
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     decisions = po.decide([[0.9, 0.1]], utility)
    >>> caught[0].category.__name__
    'ClassOrderWarning'
    """


class WeightWarning(UserWarning):
    """Weights are read as numbers of rows, and do not look like such: posteriors would be far too narrow.

    Examples
    --------
    >>> import warnings
    >>> import posteriori as po
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     model = po.BayesianSoftmaxRegression(1.0).fit([[0.0], [1.0], [2.0]], [0, 1, 0], sample_weight=[20.5] * 3)
    >>> caught[0].category.__name__
    'WeightWarning'
    """


class SingularWarning(UserWarning):
    """A covariance has no inverse: too few rows for its features, or a feature that is constant within a class.

    Examples
    --------
    >>> import warnings
    >>> from posteriori import GaussianClassifier
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     model = GaussianClassifier("full", estimate="mle").fit([[0.0], [0.0], [1.0], [2.0]], ["a", "a", "b", "b"])
    >>> caught[0].category.__name__
    'SingularWarning'
    """


class ColumnWarning(UserWarning):
    """Columns of a table that deserve a look: they give the target away, are dropped, or hold infinite numbers.

    Attributes
    ----------
    columns : tuple of str
        All columns that it is about; the message may name only the first of them.
    finding : str
        What was found, the same for all of them.

    Examples
    --------
    >>> import pandas as pd, warnings
    >>> from posteriori import TableEncoder
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     encoder = TableEncoder().fit(pd.DataFrame({"same": [1.0, 1.0, 1.0], "mass": [3.7, 4.1, 5.1]}))
    >>> caught[0].message.columns, caught[0].message.finding
    (('same',), 'constant')
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

    Examples
    --------
    >>> import pandas as pd, warnings
    >>> from posteriori import TableEncoder
    >>> encoder = TableEncoder(min_frequency=1).fit(pd.DataFrame({"sex": ["f", "m", "m"], "mass": [3.7, 4.1, 5.1]}))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     rows = encoder.transform(pd.DataFrame({"sex": ["x"], "mass": [4.0]}))
    >>> caught[0].message.column, caught[0].message.levels, caught[0].message.n_rows
    ('sex', ('x',), 1)
    """

    def __init__(self, message: str = "", column: str = "", levels: tuple[str, ...] = (), n_rows: int = 0) -> None:
        super().__init__(message, column, levels, n_rows)
        self.column, self.levels, self.n_rows = column, levels, n_rows

    def __str__(self) -> str:
        return str(self.args[0])


class SingularError(ValueError):
    """A matrix that must have an inverse has none, so far as numbers of 16 digits can tell."""


class StorageError(ValueError):
    """A file does not hold a model that can be read: it is damaged, of another kind, or from a newer version.

    Examples
    --------
    >>> import tempfile
    >>> from posteriori import load
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     try:
    ...         load(file.name)
    ...     except StorageError as error:
    ...         print("not a model:", type(error).__mro__[1].__name__)
    not a model: ValueError
    """


class StorageWarning(UserWarning):
    """A model was read from a file, but may not predict what it did: other versions of libraries wrote it.

    Examples
    --------
    >>> issubclass(StorageWarning, UserWarning)  # filter it by its class, as all warnings
    True
    """
