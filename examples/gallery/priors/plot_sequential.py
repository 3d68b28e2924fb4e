"""
Yesterday's posterior is today's prior
======================================

Rows come day by day. ``as_prior`` turns the posterior of all days so far into the prior of the next, so that old rows
need not be kept. :class:`~posteriori.GaussianClassifier` has ``partial_fit``, which is exact.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(0)
true_slope = 1.5


def day(n=40):
    """Rows of one day."""
    x = rng.normal(size=n)
    return x[:, None], (rng.random(n) < 1 / (1 + np.exp(-true_slope * x))).astype(int)


days = [day() for _ in range(12)]
prior, estimates = 0.1, []
for X, y in days:
    model = po.BayesianSoftmaxRegression(prior, approximation="laplace", classes=[0, 1]).fit(X, y)
    prior = model.as_prior()
    estimates.append(model.contrast(1, 0).query("feature == 'x0'").iloc[0])

# %%
# The slope is the difference of the two classes' weights. The last point is a fit to all twelve days at once.

X_all, y_all = np.concatenate([X for X, _ in days]), np.concatenate([y for _, y in days])
at_once = po.BayesianSoftmaxRegression(0.1, approximation="laplace").fit(X_all, y_all)
estimates.append(at_once.contrast(1, 0).query("feature == 'x0'").iloc[0])
print(f"slope day by day {estimates[-2]['mean']:.3f}, at once {estimates[-1]['mean']:.3f}")

fig, ax = plt.subplots(layout="constrained")
for i, estimate in enumerate(estimates):
    error = [[estimate["mean"] - estimate["lower"]], [estimate["upper"] - estimate["mean"]]]
    last = i == len(estimates) - 1
    ax.errorbar(i + 1, estimate["mean"], yerr=error, fmt="s" if last else "o", color="C1" if last else "C0")
ax.axhline(true_slope, color="0.6", linewidth=1, linestyle="--", zorder=0, label="true slope")
ax.legend()
ax.set_xticks([*range(1, 13), 13], [*range(1, 13), "all\nat once"])
ax.set(xlabel="days seen", ylabel="slope, 95 % interval", xlim=(0.3, 13.7))
ax.set_title("Day by day the interval narrows, to that of all days at once")
plt.show()

# %%
# Gaussian classes need counts, means and scatters only, which add up exactly.

gaussian = po.GaussianClassifier("tied", prior="evidence")
for X, y in days:
    gaussian.partial_fit(X, y, classes=[0, 1])
whole = po.GaussianClassifier("tied", prior="evidence").fit(X_all, y_all)
difference = np.abs(gaussian.predict_proba(X_all) - whole.predict_proba(X_all)).max()
print(f"largest difference of a probability: {difference:.0e}")

# %%
# **Take-away.** A posterior is all that has to be kept of old rows: what follows from it agrees with a fit to all rows,
# up to the error of a Gaussian approximation.
