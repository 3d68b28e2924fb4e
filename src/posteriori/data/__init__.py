"""User input, validated once: features, targets and weights as arrays, cut into blocks of rows."""

from posteriori.data.features import AnyFeatures, Features, column, is_table, raise_if_not_finite, read_features
from posteriori.data.memory import MemoryBlocks
from posteriori.data.target import Target, class_set, read_target
from posteriori.threads import one_blas_thread, usable_threads

__all__ = [
    "AnyFeatures",
    "Features",
    "MemoryBlocks",
    "Target",
    "class_set",
    "column",
    "is_table",
    "one_blas_thread",
    "raise_if_not_finite",
    "read_features",
    "read_target",
    "usable_threads",
]
