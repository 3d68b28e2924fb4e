"""
Paths of three solvers
======================

Gradient descent, stochastic gradients and Newton's method look for the same minimum. With two classes and one feature
there are two unknowns, a slope and an intercept, so that their paths can be drawn on a map of the objective.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(0)
x = rng.normal(loc=2.0, size=60)
y = (rng.random(60) < 1 / (1 + np.exp(-(2 * x - 4)))).astype(int)
alpha = 0.1


def objective(slope, intercept):
    """J for differences between the two classes: each has half the slope, with the penalty alpha / 2 of its square."""
    logits = (slope[..., None] * x + intercept[..., None]) * np.where(y == 1, 1, -1)
    return np.log1p(np.exp(-logits)).sum(axis=-1) + alpha / 4 * slope**2


def path(solver, lengths):
    """Where the solver is after so many iterations, which are fits of so many iterations."""
    places = [(0.0, 0.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", po.ConvergenceWarning)  # they are stopped early on purpose
        for n in lengths:
            model = po.SoftmaxRegression(alpha, solver=solver, max_iter=int(n), random_state=0).fit(x[:, None], y)
            places.append((np.diff(model.coef_[:, 0])[0], np.diff(model.intercept_)[0]))
    return np.array(places)


paths = {
    "gradient descent, 150 iterations": path(po.GradientDescent(schedule="fixed"), np.arange(1, 151)),
    "stochastic gradients, 40 passes": path(po.StochasticGradient(batch_size=2, averaging=False), np.arange(1, 41)),
    "Newton, 7 iterations": path(po.Newton(), np.arange(1, 8)),
}

# %%
# The lines are lines of equal objective; the cross is the minimum.

slope, intercept = np.meshgrid(np.linspace(-0.5, 4, 150), np.linspace(-8, 1.2, 150))
J = objective(slope, intercept)
best = po.SoftmaxRegression(alpha).fit(x[:, None], y)

fig, axes = plt.subplots(1, 3, figsize=(9.5, 3.8), sharex=True, sharey=True, layout="constrained")
for ax, (k, (name, places)) in zip(axes, enumerate(paths.items()), strict=True):
    ax.contour(
        slope, intercept, np.log(J - J.min() + 0.05), levels=12, colors="0.75", linewidths=0.8, linestyles="solid"
    )
    ax.plot(*places.T, "o-", color=f"C{k}", markersize=3, linewidth=1.2)
    ax.plot(np.diff(best.coef_[:, 0]), np.diff(best.intercept_), "x", color="C6", markersize=9, markeredgewidth=2)
    ax.set(title=name.replace(", ", "\n"), xlabel="slope")
axes[0].set_ylabel("intercept")
fig.suptitle("Three solvers on their way to the same minimum")
plt.show()

# %%
# **Take-away.** Gradient descent crawls along the narrow valley, stochastic gradients jump past the minimum and come
# back; Newton's method knows the curvature and is there in a few steps. The default solver ends with Newton's steps.
