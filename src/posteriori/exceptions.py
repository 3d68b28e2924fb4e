"""Warnings and errors of posteriori: each kind of trouble has a class of its own, to be filtered or caught."""

from sklearn.exceptions import ConvergenceWarning

__all__ = [
    "ApproximationWarning",
    "ConvergenceWarning",
    "SeparationWarning",
    "SingularError",
    "SingularWarning",
    "StorageError",
    "StorageWarning",
]


class SeparationWarning(ConvergenceWarning):
    """Some classes can be told apart without error, so that no finite maximum-likelihood estimate exists."""


class ApproximationWarning(UserWarning):
    """A posterior was approximated badly: its predictions or its weights are not to be trusted as they stand."""


class SingularWarning(UserWarning):
    """A covariance has no inverse: too few rows for its features, or a feature that is constant within a class."""


class SingularError(ValueError):
    """A matrix that must have an inverse has none, so far as numbers of 16 digits can tell."""


class StorageError(ValueError):
    """A file does not hold a model that can be read: it is damaged, of another kind, or from a newer version."""


class StorageWarning(UserWarning):
    """A model was read from a file, but may not predict what it did: other versions of libraries wrote it."""
