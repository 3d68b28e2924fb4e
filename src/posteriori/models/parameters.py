"""What all priors a user can state share: parameters by name, and checks of the numbers in them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

__all__ = ["Parameters", "numbers", "require_spd"]


@dataclass
class Parameters:
    """Parameters of a dataclass by name, as scikit-learn asks for them."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as scikit-learn asks for them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name."""
        known = self.get_params()
        unknown = [name for name in params if name not in known]
        if unknown:
            raise ValueError(f"{type(self).__name__} has no parameter {unknown[0]!r}: there are {[*known]}.")
        for name, value in params.items():
            setattr(self, name, value)
        return self


def numbers(name: str, value: Any) -> np.ndarray:
    """An array of finite numbers."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"The prior's {name} is {value!r}: numbers are needed.") from None
    if not np.isfinite(array).all():
        raise ValueError(f"The prior's {name} must be finite.")
    return array


def require_spd(name: str, M: np.ndarray) -> None:
    """Raise unless a matrix is symmetric and positive definite."""
    if not np.allclose(M, M.T, rtol=1e-8, atol=1e-12 * np.abs(M).max(initial=0.0)):
        raise ValueError(f"The prior's {name} must be symmetric.")
    try:
        np.linalg.cholesky(M)
    except np.linalg.LinAlgError:
        raise ValueError(f"The prior's {name} must be positive definite.") from None
