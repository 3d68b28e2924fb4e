"""
Learning curves of priors
=========================

With thousands of rows the prior does not matter. With few it decides how good the predictions are. Here ten features
carry information or not, and four priors are compared from 50 rows to 800.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(7)
weights = np.zeros((3, 10))
weights[:, :3] = 1.2 * rng.normal(size=(3, 3))  # three features matter, seven do not


def simulate(n):
    """Rows and classes."""
    X = rng.normal(size=(n, 10))
    return X, (X @ weights.T + rng.gumbel(size=(n, 3))).argmax(axis=1)


X_new, y_new = simulate(2000)
sizes = [50, 100, 200, 400, 800]
sets = {n: [simulate(n) for _ in range(6)] for n in sizes}

# %%
# The first model is close to maximum likelihood. Jeffreys' prior corrects its bias, "evidence" learns one strength for
# all features, and "ard" one for each.

models = {
    "hardly any": po.SoftmaxRegression(alpha=0.1),
    "jeffreys": po.BayesianSoftmaxRegression("jeffreys"),
    "evidence": po.BayesianSoftmaxRegression("evidence"),
    "ard": po.BayesianSoftmaxRegression("ard"),
}

fig, ax = plt.subplots(layout="constrained")
for k, (prior, model) in enumerate(models.items()):
    curve = []
    for n in sizes:
        losses = [-model.fit(X, y).predict_log_proba(X_new)[np.arange(2000), y_new].mean() for X, y in sets[n]]
        curve.append(np.mean(losses))
    ax.plot(sizes, curve, "o-", label=prior, color=f"C{k}")
ax.set(xscale="log", xlabel="rows of the fit", ylabel="log-loss of new rows, nats")
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
ax.legend(title="prior")
ax.set_title("The fewer the rows, the more the prior matters")
plt.show()

# %%
# **Take-away.** Let the evidence choose the strength of the prior. Try "ard" if you expect that many features do not
# matter, but not with a few dozen rows.
