"""
Votes of several people as labels
=================================

Five people have looked at each row, and do not always agree. Instead of the majority a model can be given the counts
themselves, as a target of shape (n, K): a row of 3 to 2 votes then tells less than one of 5 to 0.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(2)
X = rng.normal(size=(60, 2))
P = 1 / (1 + np.exp(-2 * X[:, 0] + X[:, 1]))
votes = rng.binomial(5, P)  # of five people, how many say class 1
counts = np.column_stack([5 - votes, votes])

majority = po.BayesianSoftmaxRegression().fit(X, (votes > 2).astype(int))
from_counts = po.BayesianSoftmaxRegression().fit(X, counts)

X_new = rng.normal(size=(500, 2))
P_new = 1 / (1 + np.exp(-2 * X_new[:, 0] + X_new[:, 1]))

# %%
# New rows, whose true probabilities we know as the data are simulated.

fig, axes = plt.subplots(1, 2, figsize=(9, 4.6), sharey=True, layout="constrained")
for ax, (name, model) in zip(
    axes, {"majority of votes": majority, "counts of votes": from_counts}.items(), strict=True
):
    predicted = model.predict_proba(X_new)[:, 1]
    ax.plot([0, 1], [0, 1], color="0.6", linewidth=1)
    ax.plot(P_new, predicted, ".", markersize=4, alpha=0.6)
    error = np.abs(predicted - P_new).mean()
    ax.set(xlabel="true probability of a vote", title=f"{name}: mean error {error:.3f}", aspect="equal")
axes[0].set_ylabel("predicted probability")
fig.suptitle("A majority hides how divided the voters were")
plt.show()

# %%
# **Take-away.** Keep the votes: counts and soft labels are targets like any others.
