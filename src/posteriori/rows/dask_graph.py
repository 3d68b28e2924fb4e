"""Graphs of Dask's tasks: one for each partition, sums added in a tree, run by the scheduler that is in charge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np

from posteriori.rows.dask_tasks import add_sums

__all__ = ["Partitions", "as_shared", "as_task", "fit_in_memory", "run_graph", "tree"]

_ADDED_AT_ONCE = 8
"""Sums that one task adds: few tasks, and yet no worker must hold many sums."""
_MEMORY_SHARE = 0.5
"""Share of the workers' free memory for rows that are kept there."""


@dataclass(frozen=True)
class Partitions:
    """Partitions as (X, Y, c), on their workers or to be read there: the keys of Dask's tasks, and their graph.

    A pass adds its own tasks to the graph and hands it to Dask's scheduler.
    """

    keys: list[Any]
    graph: dict[Any, Any]

    @classmethod
    def of(cls, parts: list[Any], kept: bool) -> Partitions:
        """Delayed partitions; if they are kept, they are read now, and released with this object."""
        import dask
        from dask.highlevelgraph import HighLevelGraph

        if kept:
            client = client_of_cluster()
            parts = list(dask.persist(*parts) if client is None else client.persist(parts))
        return cls([part.key for part in parts], HighLevelGraph.merge(*(part.dask for part in parts)).to_dict())

    def map(
        self,
        function: Callable[..., Any],
        shared: Any,
        wanted: Sequence[int] | np.ndarray | None = None,
        own: Sequence[tuple[Any, ...]] | None = None,
    ) -> list[Any]:
        """``function(shared, part, *own)`` of the partitions wanted, or of all."""
        tasks, keys = self._tasks(function, shared, range(len(self.keys)) if wanted is None else wanted, own)
        return run_graph(self.graph | tasks, keys)

    def sum(self, function: Callable[..., Any], shared: Any, wanted: Sequence[int] | np.ndarray) -> Any:
        """The sum of ``function(shared, part)`` over the partitions wanted, in a tree given by their number."""
        tasks, keys = self._tasks(function, shared, wanted, None)

        def add(group: list[str]) -> str:
            key = f"add_sums-{uuid4().hex}"
            tasks[key] = (add_sums, group)
            return key

        total = tree(add, keys)
        return run_graph(self.graph | tasks, [total])[0]

    def _tasks(
        self, function: Callable[..., Any], shared: Any, wanted: Any, own: Sequence[tuple[Any, ...]] | None
    ) -> tuple[dict[Any, Any], list[str]]:
        """One task for each partition wanted; what they share is a node of the graph, sent once to each worker."""
        name, token = function.__name__, uuid4().hex
        own = [()] * len(wanted) if own is None else own
        tasks = {
            f"{name}-{token}-{i}": (function, f"shared-{token}", self.keys[i], *mine)
            for i, mine in zip(wanted, own, strict=True)
        }
        return tasks | {f"shared-{token}": shared}, list(tasks)


def fit_in_memory(n_bytes: float) -> bool:
    """Whether so many bytes fit beside what the workers hold; without a cluster, in the memory of this machine."""
    client = client_of_cluster()
    if client is None:
        try:
            from distributed.system import MEMORY_LIMIT
        except ImportError:
            return False
        return n_bytes <= _MEMORY_SHARE * MEMORY_LIMIT
    free = 0.0
    for worker in client.scheduler_info(n_workers=-1)["workers"].values():
        limit = worker["memory_limit"] or np.inf  # 0: none is set
        free += max(0.0, limit - worker.get("metrics", {}).get("memory", 0))
    return n_bytes <= _MEMORY_SHARE * free


def client_of_cluster() -> Any:
    """The client of the cluster that is to compute, or None for Dask's schedulers on this machine."""
    from dask.base import get_scheduler

    client = getattr(get_scheduler(), "__self__", None)  # the scheduler of a cluster is a method of its client
    return client if hasattr(client, "scheduler_info") else None


def as_task(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a task of Dask's; its arguments are not looked through for others, but for lists of them."""
    from dask import delayed

    return delayed(function, pure=False)


def as_shared(value: Any) -> Any:
    """One value that many tasks use, sent once."""
    from dask import delayed

    return delayed(value, name=f"shared-{uuid4().hex}", traverse=False)


def tree(merge: Callable[[list[Any]], Any], parts: list[Any]) -> Any:
    """Merge neighbours, a few at a time, until one is left; which are merged depends on their number alone."""
    while len(parts) > 1:
        parts = [merge(parts[i : i + _ADDED_AT_ONCE]) for i in range(0, len(parts), _ADDED_AT_ONCE)]
    return parts[0]


def run_graph(graph: dict[Any, Any], keys: list[Any]) -> list[Any]:
    """The results of some tasks of a graph, by the scheduler that is set in Dask, else by its threads."""
    from dask.base import get_scheduler
    from dask.threaded import get

    return list((get_scheduler() or get)(graph, keys))
