"""Callbacks of scikit-learn, from its version 1.9 on: whoever watches a fit is told of each of its iterations.

`ProgressBar` counts iterations. `ScoringMonitor` scores the model as it would be if the fit had ended with one, where
an iteration knows such a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["CALLBACKS", "CALLER_OF_FIT", "WatchedFit", "watched"]

CALLBACKS = "_skl_callbacks"
"""The attribute in which scikit-learn keeps the callbacks of an estimator; they are no part of a model."""

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """No callbacks."""

    with_callbacks = None

CALLER_OF_FIT = 3 if with_callbacks is None else 4
"""The `stacklevel` of a warning, from a function that a watched `fit` calls, that points to the line of the user."""

Method = TypeVar("Method", bound=Callable[..., Any])
Attributes = Callable[[], dict[str, Any]]
"""A function that returns the attributes of an estimator as if its fit had ended here."""


def watched(fit: Method) -> Method:
    """The method `fit` of a `WatchedFit`, at whose end callbacks are ended too, whatever happened."""
    return fit if with_callbacks is None else with_callbacks(fit)


class WatchedFit(CallbackSupportMixin):
    """An estimator on which callbacks may be set, by `set_callbacks` or by a meta-estimator around it."""

    @contextmanager
    def _iterations(
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> Iterator[Callable[[Attributes | None], None] | None]:
        """A function to call after each iteration; None where nobody watches.

        y and sample_weight are what a scorer needs, or functions that return it.
        """
        if with_callbacks is None:
            yield None
            return
        context = self._init_callback_context(max_subtasks=None)
        weights = sample_weight if callable(sample_weight) else lambda: sample_weight

        def metadata() -> dict[str, Any] | None:
            found = weights()
            return None if found is None else {"sample_weight": found}

        data = {"estimator": self, "X": X, "y": y, "metadata": metadata}

        def tell(attributes: Attributes | None) -> None:
            task = context.subcontext(task_name="iteration")
            task.call_on_fit_task_begin(**data)
            task.call_on_fit_task_end(**data, reconstruction_attributes=attributes)

        context.call_on_fit_task_begin(**data)
        yield tell if hasattr(self, CALLBACKS) else None
        context.call_on_fit_task_end(**data)
