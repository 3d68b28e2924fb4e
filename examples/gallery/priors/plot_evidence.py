"""
Evidence and cross-validation
=============================

How strong should the prior be? Cross-validation fits the model several times for each candidate and looks at left-out
rows. The *evidence* is the probability of the labels with the weights integrated out: one fit for each candidate, and
no row is left out. It can be maximised directly, so that there is no grid at all.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import cross_val_score

import posteriori as po

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 10))
weights = rng.normal(scale=0.5, size=(3, 10))  # their precision is 4
y = (X @ weights.T + rng.gumbel(size=(200, 3))).argmax(axis=1)

precisions = np.logspace(-2, 3, 16)
evidence = [po.BayesianSoftmaxRegression(a, approximation="laplace").fit(X, y).log_evidence_ for a in precisions]
loss = [-cross_val_score(po.SoftmaxRegression(a), X, y, cv=10, scoring="neg_log_loss").mean() for a in precisions]
found = np.mean(po.BayesianSoftmaxRegression().fit(X, y).prior_.precision)

# %%
# The 16 evidences take 16 fits, the 16 log-losses 160. The dashed line is what the default, ``prior="evidence"``,
# takes.

fig, (top, bottom) = plt.subplots(2, 1, figsize=(7.5, 5.4), sharex=True, layout="constrained")
top.plot(precisions, evidence, "o-", color="C0")
top.set(ylabel="log evidence, nats", title="The evidence is greatest ...")
bottom.plot(precisions, loss, "o-", color="C1")
bottom.set(xscale="log", xlabel="precision of the prior", ylabel="log-loss, nats a row")
bottom.set_title("... where the cross-validated log-loss is near its least")
for ax in (top, bottom):
    ax.axvline(found, color="C6", linestyle="--", linewidth=1.2)
top.text(found * 1.1, top.get_ylim()[0], "default", va="bottom")
plt.show()

# %%
# **Take-away.** Where the model is about right, the evidence finds a good strength of the prior from fits to all rows,
# without folds. Where it is wrong, for example as some labels are mistakes, the two can disagree: the default therefore
# also looks at left-out rows.
