"""
Each row has its own stakes
===========================

Whether to check a payment depends on the probability of fraud *and* on the amount. A utility may be a function of the
row: the same probability leads to different actions.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(0)
n = 600
amount = np.exp(rng.normal(4, 1.2, n))
strange = rng.normal(size=n)  # how unusual the payment is
y = np.where(rng.random(n) < 1 / (1 + np.exp(-2 * strange + 3)), "fraud", "honest")
X = np.column_stack([strange, amount])

model = po.BayesianSoftmaxRegression().fit(X[:, :1], y)
P = model.predict_proba(X[:, :1])


def stakes(rows):
    """For each payment, what paying and checking are worth if it is fraud or honest, (n, 2, 2)."""
    lost = np.zeros((len(rows), 2, 2))
    lost[:, 0, 0] = -rows[:, 1]  # the amount, if a fraud is paid
    lost[:, :, 1] = -5.0  # a check costs 5 in either case
    return lost


utility = po.Utility(stakes, states=["fraud", "honest"], actions=["pay", "check"])
decisions = po.decide(P, utility, classes=model.classes_, X=X)

# %%
# The line is where both actions are worth the same: a probability of 5 / amount.

fraud = P[:, list(model.classes_).index("fraud")]
fig, ax = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
for k, action in enumerate(["pay", "check"]):
    mine = decisions.actions == action
    ax.scatter(amount[mine], fraud[mine], s=14, color=f"C{k}", alpha=0.7, label=f"{action} ({mine.sum()})")
line = np.logspace(0, 4, 100)
ax.plot(line, 5 / line, color="C6", linewidth=1)
ax.set(xscale="log", yscale="log", xlim=(2, 4000), ylim=(1e-4, 1.3))
ax.set(xlabel="amount", ylabel="probability of fraud", title="Small sums are paid, large ones are checked")
ax.legend(loc="lower left")
plt.show()

# %%
# **Take-away.** Let the utility depend on the row where the stakes do; the model of the probability stays as it is.
