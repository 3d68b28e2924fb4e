"""
Levels with few rows
====================

A category of many levels has levels with hundreds of rows and levels with three. With ``prior="blocks"`` the effects
of all levels share one prior, whose width is learned from all of them: a level with few rows stays near the others.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline

import posteriori as po

rng = np.random.default_rng(0)
towns = [f"town {i:02d}" for i in range(40)]
size = np.round(np.logspace(np.log10(3), np.log10(200), 40)).astype(int)
true_logit = rng.normal(0, 0.8, 40)
town = np.repeat(np.arange(40), size)
y = np.where(rng.random(len(town)) < 1 / (1 + np.exp(-true_logit[town])), "yes", "no")
table = pd.DataFrame({"town": np.array(towns)[town], "answer": y})

model = make_pipeline(po.TableEncoder(min_frequency=1), po.BayesianSoftmaxRegression("blocks")).fit(table, "answer")
pooled = model.predict_proba(pd.DataFrame({"town": towns}))[:, list(model.classes_).index("yes")]
share = np.bincount(town, weights=y == "yes") / size
truth = 1 / (1 + np.exp(-true_logit))

# %%
# Shares of "yes" as counted, and as predicted. A line joins the two.

fig, ax = plt.subplots(figsize=(8, 4.6), layout="constrained")
ax.vlines(size, share, pooled, color="0.75", linewidth=1.2, zorder=0)
ax.plot(size, share, "o", color="C1", markersize=5, label=f"counted, mean error {np.abs(share - truth).mean():.3f}")
ax.plot(size, pooled, "o", color="C0", markersize=5, label=f"pooled, mean error {np.abs(pooled - truth).mean():.3f}")
ax.axhline((y == "yes").mean(), color="C6", linewidth=1, linestyle="--", label="all towns")
ax.set(xscale="log", xlabel="rows of the town", ylabel='share of "yes"', ylim=(-0.03, 1.03))
ax.set_xticks([3, 10, 30, 100, 200], [3, 10, 30, 100, 200])
ax.minorticks_off()
ax.set_title("Towns with few rows are drawn towards the others")
ax.legend(loc="lower right")
plt.show()

# %%
# **Take-away.** Do not drop or merge rare levels by hand: let the prior decide how far each is believed.
