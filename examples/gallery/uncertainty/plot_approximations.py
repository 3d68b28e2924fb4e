"""
Laplace, variational and importance
===================================

The posterior of a softmax regression has no simple form, so a Gaussian stands for it. *Laplace's* sits at the mode,
with the curvature there. The *variational* one is the Gaussian closest to the posterior as a whole. *Importance*
weights correct draws from it. With two classes and one weight the exact posterior can be computed on a grid, and
compared.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

x = np.array([-2.0, -1.5, -1.0, -0.8, 0.6, 0.9, 1.2, 1.6])
y = (x > 0).astype(int)  # separable: the likelihood grows with the slope without end

# %%
# Both classes have a weight with the prior N(0, 1/0.1). Their difference is the slope of the logit, whose prior has
# twice that variance. Under a draw of the weights the slope is the log-odds at x = 1.

slope = np.linspace(-1, 30, 800)
log_posterior = -np.log1p(np.exp(-np.outer(slope, np.where(y == 1, x, -x)))).sum(axis=1) - 0.1 * slope**2 / 4
exact = np.exp(log_posterior - log_posterior.max())
exact /= exact.sum() * (slope[1] - slope[0])

fig, ax = plt.subplots(layout="constrained")
ax.fill_between(slope, exact, color="0.8", label="exact")
for k, approximation in enumerate(["laplace", "variational", "importance"]):
    model = po.BayesianSoftmaxRegression(0.1, approximation=approximation, fit_intercept=False, n_draws=20_000)
    P = model.fit(x[:, None], y).sample_proba([[1.0]], n_draws=20_000, random_state=0)[:, 0]
    log_odds = np.log(P[:, 1]) - np.log(P[:, 0])
    ax.hist(log_odds, np.linspace(-8, 30, 77), density=True, histtype="step", lw=2, color=f"C{k}", label=approximation)
    print(f"{approximation:12} mean {log_odds.mean():5.2f}, standard deviation {log_odds.std():5.2f}")
mean = np.average(slope, weights=exact)
deviation = np.sqrt(np.average((slope - mean) ** 2, weights=exact))
print(f"{'exact':12} mean {mean:5.2f}, standard deviation {deviation:5.2f}")
ax.set(xlabel="slope of the logit", ylabel="density", xlim=(-5, 16), yticks=[])
ax.set_title("Posterior of one slope, exact and by three approximations")
ax.legend()
plt.show()

# %%
# **Take-away.** Where classes are nearly separable, Laplace's Gaussian lies too far to the left, and gives some
# probability to slopes of the wrong sign; the default, ``approximation="auto"``, compares the approximations by
# left-out rows and takes the one that predicts best.
