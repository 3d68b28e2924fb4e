"""
Would more training data change the decision?
=============================================

The probability of a state is itself uncertain. With draws from the posterior, ``decide`` says how probable it is that
each action is really the best one, and what it would be worth to know the parameters before acting.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(1)
x_new = np.linspace(-3, 3, 121)[:, None]
insure = po.Utility([[-10, -2], [0, -2]], states=["damage", "none"], actions=["take the risk", "insure"])

# %%
# Two models of the same kind, one of 40 rows and one of 400.

fig, axes = plt.subplots(2, 2, figsize=(9.5, 6), sharex=True, sharey="row", layout="constrained")
for (top, bottom), n in zip(axes.T, [40, 400], strict=True):
    x = rng.normal(size=(n, 1))
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-1.5 * x[:, 0] + 1)), "damage", "none")
    model = po.BayesianSoftmaxRegression().fit(x, y)
    draws = model.sample_proba(x_new, 500, random_state=0)
    decisions = po.decide(model.predict_proba(x_new), insure, classes=model.classes_, draws=draws)
    top.plot(x_new, decisions.probability_best[:, 1], color="C0")
    bottom.plot(x_new, decisions.cost_of_uncertainty, color="C1")
    top.set_title(f"{n} rows")
    bottom.set_xlabel("x")
axes[0, 0].set_ylabel("probability that\ninsuring is best")
axes[1, 0].set_ylabel("worth of knowing\nthe parameters")
fig.suptitle("With more rows fewer decisions are in doubt")
plt.show()

# %%
# **Take-away.** A decision is in doubt only near its border; more training data are worth something there and nowhere
# else.
