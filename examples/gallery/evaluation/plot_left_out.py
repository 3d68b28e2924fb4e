"""
Left-out rows without new fits
==============================

Cross-validation asks what a model says of rows it has not seen, and fits it again and again for the answer. ``loo``
says it from one fit, by a formula. Here both are compared row by row.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import LeaveOneOut, cross_val_predict

import posteriori as po

wine = load_wine(as_frame=True)
X, y = wine.data[["alcohol", "malic_acid", "hue", "proline"]].to_numpy(), wine.target.to_numpy()
rows = np.arange(len(y))
model = po.SoftmaxRegression(0.1).fit(X, y)

start = time.perf_counter()
left = model.loo()
seconds = time.perf_counter() - start
start = time.perf_counter()
refitted = cross_val_predict(po.SoftmaxRegression(0.1), X, y, cv=LeaveOneOut(), method="predict_log_proba")
print(f"formula {seconds:.3f} s, {len(y)} fits {time.perf_counter() - start:.3f} s")

# %%
# The probability of each row's own label, when the row is left out. The second panel shows what the model says of rows
# that it has seen.

by_formula = np.exp(left.log_proba[rows, y])
by_fits = np.exp(refitted[rows, y])
seen = model.predict_proba(X)[rows, y]

fig, axes = plt.subplots(1, 2, figsize=(9, 4.6), sharey=True, layout="constrained")
for ax, (name, p) in zip(axes, {"left out by a formula": by_formula, "not left out": seen}.items(), strict=True):
    ax.plot([0, 1], [0, 1], color="0.6", linewidth=1)
    ax.plot(by_fits, p, "o", markersize=5, alpha=0.6)
    loss = -np.log(p).mean()
    ax.set(xlabel="left out by a new fit", title=f"{name}: log-loss {loss:.3f}", aspect="equal")
axes[0].set_ylabel("probability of the own label")
fig.suptitle(f"One fit and a formula give what {len(y)} fits give: log-loss {-np.log(by_fits).mean():.3f}")
plt.show()

# %%
# **Take-away.** Use ``model.loo()`` where you would have written a cross-validation loop: it takes about as long as a
# prediction.
