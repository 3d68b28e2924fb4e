"""The Bayesian fit: prior, mode, curvature, the choice of an approximation, and a record of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from posteriori.data import MemoryBlocks, Target
from posteriori.estimators.solving import solve
from posteriori.estimators.standardising import StandardLikelihood
from posteriori.inference import Automatic, BayesianSolution, Iterate, Solution, Solver, Status, TraceEntry, run
from posteriori.inference.evidence import HIGHEST, LOWEST, Evidence, EvidencePoint, maximise_evidence
from posteriori.inference.importance import importance
from posteriori.inference.jeffreys import JeffreysProblem, fisher_scoring
from posteriori.inference.laplace import Laplace, laplace
from posteriori.inference.leave_one_out import left_out
from posteriori.inference.newton import forms_hessian
from posteriori.inference.posterior import DiagonalPosterior, FullPosterior, KroneckerPosterior, Posterior
from posteriori.inference.variational import Variational, variational
from posteriori.maths import softmax as kernels
from posteriori.models.precision import DiagonalPrecision
from posteriori.models.prior import WEAK, WEAKEST, Prior
from posteriori.models.softmax import SoftmaxObjective

__all__ = ["BayesianFit", "Settings", "bayesian_fit"]

FULL_PARAMETERS = 10_000
"""Most parameters K D' of a full posterior."""
_FULL_FLOPS = 1e12
"""Most multiplications that "auto" spends on a full Hessian."""
_KRONECKER_SIDE = 4_000
"""Most classes or features of a Kronecker posterior."""
_VARIATIONAL_PARAMETERS = 2_000
_VARIATIONAL_VALUES = 4e7
"""Rows x classes up to which "auto" tries a variational posterior."""
_REFEREE_ROWS = 2_000
"""Rows on which approximations are compared: a random sample if there are more."""
_REFEREE_FLOPS = 4e8
_ALIKE = 0.003
"""Share of the log-loss by which Laplace and plug-in must differ for a better approximation to be worth its price."""


@dataclass(frozen=True)
class Settings:
    """What the user asked for, validated."""

    prior: Any
    approximation: str
    posterior: str
    fit_intercept: bool
    solver: Solver
    tol: float
    max_iter: int
    n_draws: int
    random_state: int
    report: Callable[[int, Iterate], None] | None = None

    @property
    def scaled(self) -> bool:
        """Whether the prior is stated for columns of unit spread."""
        return isinstance(self.prior, str) or bool(self.prior.autoscale)


@dataclass(frozen=True)
class BayesianFit:
    """A fit in standard coordinates."""

    theta: np.ndarray
    """The mode, (K, D')."""
    posterior: Posterior
    prior: Prior | None
    """None for Jeffreys'."""
    log_evidence: float | None
    solution: BayesianSolution
    source: FullPosterior | None = None


@dataclass
class _Found:
    """The mode under the chosen prior, and how it was come by."""

    objective: SoftmaxObjective
    theta: np.ndarray
    solution: Solution
    laplace: Laplace | None = None
    path: list[EvidencePoint] | None = None
    converged: bool | None = None


def bayesian_fit(likelihood: StandardLikelihood, target: Target, settings: Settings) -> BayesianFit:
    """Fit in standard coordinates."""
    K, D = len(target.classes), likelihood.blocks.n_features
    width = D + settings.fit_intercept
    structure, reason = _structure(settings, likelihood.blocks.n_rows, K, width)
    if structure != "full" and settings.approximation in ("variational", "importance"):
        raise ValueError(
            f"approximation={settings.approximation!r} needs a full posterior, and this one is {structure} ({reason}): "
            "use approximation='laplace' or 'auto', or posterior='full' if it fits."
        )
    if settings.prior == "jeffreys":
        return _jeffreys(likelihood, settings, structure, reason, (K, width))
    if settings.prior in ("evidence", "ard"):
        found = _by_evidence(likelihood, settings, structure, (K, D))
    else:
        prior = settings.prior.within(K, D, settings.fit_intercept, likelihood.coordinates)
        objective = likelihood.objective(prior.precision, prior.mean)
        found = _Found(objective, *_solve(objective, settings, np.zeros((K, width))))
    prior = Prior(found.objective.mean, found.objective.prior)
    record: dict[str, Any] = {
        "structure": structure,
        "structure_reason": reason,
        "evidence_path": found.path or [],
        "evidence_converged": found.converged,
    }
    if structure != "full" or found.solution.status is Status.INTERRUPTED:
        posterior, log_evidence = _structured(
            found.objective, found.theta, "diagonal" if structure == "full" else structure
        )
        record |= {
            "structure": posterior.structure,
            "approximation_reason": f"the only one for a {structure} posterior",
        }
        return BayesianFit(found.theta, posterior, prior, log_evidence, _recorded(found.solution, record))
    at_mode = found.laplace or laplace(found.objective, found.theta)
    try:
        fitted = _approximate(likelihood.blocks, found.objective, at_mode, target, settings)
    except KeyboardInterrupt:  # the mode is known: Laplace's posterior is what there is
        fitted = _Approximated(at_mode.posterior, {"approximation_reason": "interrupted before another was found"})
        record["status"] = Status.INTERRUPTED
    record |= fitted.record
    log_evidence = at_mode.log_evidence if fitted.log_evidence is None else fitted.log_evidence
    return BayesianFit(
        found.theta, fitted.posterior, prior, log_evidence, _recorded(found.solution, record), fitted.source
    )


def _structure(settings: Settings, N: int, K: int, width: int) -> tuple[str, str]:
    """Of the posterior, and why."""
    size = K * width
    if settings.posterior != "auto":
        if settings.posterior == "full" and size > FULL_PARAMETERS:
            gib = 4 * 8 * size**2 / 2**30
            raise ValueError(
                f"posterior='full' with {K} classes and {width} coefficients each needs about {gib:.1f} GiB: "
                "use posterior='kronecker' or 'diagonal', or 'auto'."
            )
        if settings.posterior == "kronecker" and max(K, width) > 2 * _KRONECKER_SIDE:
            gib = 5 * 8 * max(K, width) ** 2 / 2**30
            raise ValueError(
                f"posterior='kronecker' with {K} classes and {width} coefficients each needs about {gib:.1f} GiB, and "
                "hours: use posterior='diagonal', or 'auto'."
            )
        return settings.posterior, "as asked"
    flops = 0.5 * N * ((K - 1) * width) ** 2
    if size <= 8_000 and flops <= _FULL_FLOPS:
        return "full", f"{size} parameters"
    why = f"{size} parameters" if size > 8_000 else f"{flops:.1g} multiplications for a full one"
    if max(K, width) <= _KRONECKER_SIDE:
        return "kronecker", why
    return "diagonal", why


def _solve(objective: SoftmaxObjective, settings: Settings, start: np.ndarray) -> tuple[np.ndarray, Solution]:
    return solve(
        objective,
        settings.solver,
        start,
        tol=settings.tol,
        max_iter=settings.max_iter,
        random_state=settings.random_state,
        report=settings.report,
    )


def _by_evidence(likelihood: StandardLikelihood, settings: Settings, structure: str, shape: tuple[int, int]) -> _Found:
    """One precision for all weights ("evidence") or one per feature ("ard"), and the mode that goes with it."""
    K, D = shape
    ard = settings.prior == "ard"
    centre = likelihood.coordinates.centre if settings.fit_intercept else None

    n_weights = D if ard else 1

    def problem_at(u: np.ndarray) -> SoftmaxObjective:
        values = np.full((K, D + settings.fit_intercept), WEAK)
        values[:, :D] = np.exp(u[:n_weights])
        values[:, D:] = np.exp(u[n_weights:]) if u.size > n_weights else WEAK
        return likelihood.objective(DiagonalPrecision(values, centre))

    start = np.zeros(n_weights)
    theta = np.zeros((K, D + settings.fit_intercept))
    first = problem_at(start)
    if not forms_hessian(first):
        best, status, _ = run(Automatic().steps(first, theta, 1e-9), settings.max_iter, settings.report)
        theta = best.theta
        if status is Status.INTERRUPTED:
            return _Found(first, *_interrupted(first, theta))
    if structure != "full":
        return _fixed_point(problem_at, settings, structure, start, theta)
    groups = np.arange(D) if ard else np.zeros(D, dtype=int)
    lower, upper = np.full(n_weights, LOWEST), np.full(n_weights, HIGHEST)
    if settings.fit_intercept:  # the weak prior of the mean row's logit may prove not weak enough
        groups, start = np.append(groups, n_weights), np.append(start, np.log(WEAK))
        lower, upper = np.append(lower, np.log(WEAKEST)), np.append(upper, np.log(WEAK))
    evidence = Evidence(problem_at, groups, theta, centre)
    try:
        converged = maximise_evidence(evidence, start, (lower, upper))
    except KeyboardInterrupt:
        if evidence.found is None:
            raise
        objective = problem_at(evidence.path[-1].u)
        return _Found(objective, *_interrupted(objective, evidence.theta), path=evidence.path, converged=False)
    objective, found = problem_at(evidence.path[-1].u), evidence.found
    assert found is not None
    theta, solution = _certified(objective, found, settings, len(evidence.path))
    same = theta is found.posterior.mean
    return _Found(objective, theta, solution, found if same else None, evidence.path, converged)


def _certified(
    objective: SoftmaxObjective, found: Laplace, settings: Settings, n_iter: int
) -> tuple[np.ndarray, Solution]:
    """The mode of the search, if it is close enough to the optimum by its own Hessian; else solved for."""
    theta = found.posterior.mean
    value, gradient = objective.value_gradient(theta)
    gap = 0.5 * float(np.vdot(gradient, found.posterior.solve(gradient)))
    if not gap <= settings.tol * abs(value):
        return _solve(objective, settings, theta)
    return theta, _end(objective, theta, Status.CONVERGED, gap, n_iter)


def _interrupted(objective: SoftmaxObjective, theta: np.ndarray) -> tuple[np.ndarray, Solution]:
    return theta, _end(objective, theta, Status.INTERRUPTED, float("inf"), 0)


def _end(objective: SoftmaxObjective, theta: np.ndarray, status: Status, gap: float, n_iter: int) -> Solution:
    value, gradient = objective.value_gradient(theta)
    norm = float(np.linalg.norm(gradient))
    return Solution(
        status=status,
        objective=value,
        gradient_norm=norm,
        gap=gap,
        gap_bound=objective.gap_bound(gradient),
        n_iter=n_iter,
        n_passes=objective.blocks.n_passes,
        trace=[TraceEntry(value, norm, gap)],
    )


def _fixed_point(
    problem_at: Callable[[np.ndarray], SoftmaxObjective],
    settings: Settings,
    structure: str,
    u: np.ndarray,
    theta: np.ndarray,
) -> _Found:
    """MacKay's fixed point, for posteriors whose determinant has no slope worth its price."""
    D = theta.shape[1] - settings.fit_intercept
    for _ in range(20):
        objective = problem_at(u)
        theta, solution = _solve(objective, settings, theta)
        if solution.status is Status.INTERRUPTED:
            return _Found(objective, theta, solution, converged=False)
        posterior, _ = _structured(objective, theta, structure)
        gamma = 1.0 - np.exp(u) * posterior.variances()[:, :D]
        squares = theta[:, :D] ** 2
        axis = None if u.size == 1 else 0
        new = np.log(np.maximum(gamma.sum(axis), 1e-3) / np.maximum(squares.sum(axis), 1e-300))
        change = np.clip(np.atleast_1d(new) - u, -3.0, 3.0)
        if np.abs(change).max() < 0.05:
            return _Found(objective, theta, solution, converged=True)
        u = np.clip(u + change, LOWEST, HIGHEST)
    return _Found(objective, theta, solution, converged=False)


def _structured(objective: SoftmaxObjective, theta: np.ndarray, structure: str) -> tuple[Posterior, float | None]:
    """A Kronecker or diagonal posterior at theta, and the log evidence by it."""
    posterior: KroneckerPosterior | DiagonalPosterior
    if structure == "kronecker":
        if not objective.prior.exchangeable:
            raise ValueError(
                "posterior='kronecker' needs a prior that treats all classes alike: use posterior='full' or 'diagonal'."
            )
        A, G = objective.blocks.map_sum(kernels.kronecker_factors, theta, None, coarse=True)
        common = objective.prior.matrix(np.eye(len(theta))[:, :1])
        posterior = KroneckerPosterior(theta, A / max(np.trace(A), np.finfo(float).tiny), G, common)
    else:
        posterior = _diagonal_posterior(objective, theta)
    value, _ = objective.value_gradient(theta)
    return posterior, -value + 0.5 * objective.prior.log_det() - 0.5 * posterior.log_det


def _diagonal_posterior(objective: SoftmaxObjective, theta: np.ndarray) -> DiagonalPosterior:
    prior = objective.prior
    if isinstance(prior, DiagonalPrecision) and prior.centre is not None:
        return DiagonalPosterior(theta, objective.centred_diagonal(theta, prior.centre) + prior.values, prior.centre)
    return DiagonalPosterior(theta, objective.diagonal(theta) + objective.precision)


@dataclass(frozen=True)
class _Approximated:
    posterior: Posterior
    record: dict[str, Any]
    log_evidence: float | None = None
    source: FullPosterior | None = None


def _approximate(
    blocks: MemoryBlocks, objective: SoftmaxObjective, at_mode: Laplace, target: Target, settings: Settings
) -> _Approximated:
    """The posterior asked for, or the one that the referee prefers."""
    asked = settings.approximation
    if asked == "laplace":
        return _Approximated(at_mode.posterior, {"approximation": "laplace", "approximation_reason": "as asked"})
    theta, H_lik = at_mode.posterior.mean, at_mode.likelihood_hessian
    if asked == "importance":
        proposal = variational(objective, theta, H_lik)
        rng = np.random.default_rng(settings.random_state)
        weighed = importance(objective, proposal.posterior, settings.n_draws, rng)
        record = {
            "approximation": "importance",
            "approximation_reason": "as asked",
            "bound": proposal.bound,
            "k_hat": weighed.k_hat,
            "effective_sample_size": weighed.effective_sample_size,
        }
        return _Approximated(weighed.posterior, record, weighed.log_evidence)
    if asked == "variational":
        found = variational(objective, theta, H_lik)
        return _of_variational(found, "as asked", {})
    return _by_referee(blocks, objective, at_mode, target)


def _of_variational(found: Variational, reason: str, scores: dict[str, float]) -> _Approximated:
    record = {
        "approximation": "variational",
        "approximation_reason": reason,
        "approximation_converged": found.converged,
        "scores": scores,
        "bound": found.bound,
    }
    return _Approximated(found.posterior, record, None, found.source)


def _by_referee(blocks: MemoryBlocks, objective: SoftmaxObjective, at_mode: Laplace, target: Target) -> _Approximated:
    """Laplace where it predicts left-out rows as the plug-in does; else the better of it and a variational one."""
    X, Y, share = _referee_rows(blocks, target)

    def loss(log_p: np.ndarray) -> float:
        return float(-(share @ log_p) / share.sum())

    judged = left_out(at_mode.posterior, X, Y, np.minimum(share, 1.0))
    scores = {"plugin": loss(judged.plugin), "laplace": loss(judged.averaged)}

    def chosen(reason: str) -> _Approximated:
        record = {"approximation": "laplace", "approximation_reason": reason, "scores": scores}
        return _Approximated(at_mode.posterior, record)

    if abs(scores["laplace"] - scores["plugin"]) <= _ALIKE * scores["plugin"]:
        return chosen("left-out rows are predicted as well as by the mode: there is little to gain")
    K = len(target.classes)
    if len(at_mode.likelihood_hessian) > _VARIATIONAL_PARAMETERS or objective.n_rows * K > _VARIATIONAL_VALUES:
        return chosen("too large for a variational posterior")
    found = variational(objective, at_mode.posterior.mean, at_mode.likelihood_hessian)
    judged = left_out(found.posterior, X, Y, np.minimum(share, 1.0), found.source)
    scores["variational"] = loss(judged.averaged)
    if scores["variational"] <= scores["laplace"]:
        return _of_variational(found, "it predicts left-out rows best", scores)
    return chosen("it predicts left-out rows best")


def _referee_rows(blocks: MemoryBlocks, target: Target) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Some rows of the fit in standard coordinates, their targets (n, K) and weights."""
    weights = np.ones(blocks.n_rows) if target.weights is None else target.weights
    rows = np.flatnonzero(weights > 0)
    K = len(target.classes)
    most = int(np.clip(_REFEREE_FLOPS / K**3, 200, _REFEREE_ROWS))
    if rows.size > most:
        rows = np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
    X = blocks.features(rows)
    Y = np.eye(K)[target.codes[rows]] if target.codes is not None else target.probs[rows]  # type: ignore[index]
    return X, Y, weights[rows]


def _jeffreys(
    likelihood: StandardLikelihood, settings: Settings, structure: str, reason: str, shape: tuple[int, int]
) -> BayesianFit:
    if structure != "full":
        raise ValueError(f"prior='jeffreys' needs a full posterior, and this one is {structure} ({reason}).")
    if settings.approximation not in ("auto", "laplace"):
        raise ValueError(
            f"approximation={settings.approximation!r} needs a proper prior, and Jeffreys' is none: use 'laplace'."
        )
    objective = likelihood.objective(np.zeros(shape))
    problem = JeffreysProblem(objective)
    best, status, trace = run(
        fisher_scoring(problem, np.zeros(shape), settings.tol), settings.max_iter, settings.report
    )
    solution = BayesianSolution(
        status=status,
        objective=best.objective,
        gradient_norm=trace[-1].gradient_norm,
        gap=float("inf") if best.gap is None else best.gap,
        gap_bound=None,
        n_iter=len(trace) - 1,
        n_passes=objective.blocks.n_passes,
        trace=trace,
        structure_reason=reason,
        approximation_reason="the only one for Jeffreys' prior",
    )
    return BayesianFit(best.theta, problem.posterior(best.theta), None, None, solution)


def _recorded(solution: Solution, record: dict[str, Any]) -> BayesianSolution:
    """The solve's record and that of the choices around it."""
    return BayesianSolution(**({f.name: getattr(solution, f.name) for f in fields(Solution)} | record))
