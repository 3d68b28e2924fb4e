"""
Missing values
==============

Gaussian classes with independent features need no filling of gaps: a missing value is left out of the product, in the
fit and in predictions. Filling gaps with the mean pretends to have measured it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.impute import SimpleImputer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import posteriori as po

X, y = load_wine(return_X_y=True)
rng = np.random.default_rng(0)
u = rng.random(X.shape)  # a value is missing where this is below the share
shares = np.array([0.0, 0.2, 0.4, 0.6, 0.8])

# %%
# More and more values of the wine data are removed. The log-loss is that of five folds.

models = {
    "left out": po.GaussianClassifier("diagonal"),
    "filled with means": make_pipeline(SimpleImputer(), po.GaussianClassifier("diagonal")),
}
fig, ax = plt.subplots(layout="constrained")
for k, (name, model) in enumerate(models.items()):
    loss = [
        -cross_val_score(model, np.where(u < share, np.nan, X), y, cv=5, scoring="neg_log_loss").mean()
        for share in shares
    ]
    ax.plot(100 * shares, loss, "o-", color=f"C{k}", label=name)
ax.axhline(np.log(3), color="0.6", linewidth=1, linestyle="--")
ax.text(0, np.log(3) - 0.02, "knowing nothing", color="0.35", va="top")
ax.set(xlabel="missing values, %", ylabel="log-loss, nats", ylim=(0, None))
ax.set_title("Gaps that are left out cost less than gaps that are filled")
ax.legend(title="missing values are", loc="center left")
plt.show()

# %%
# **Take-away.** Hand NaN to :class:`~posteriori.GaussianClassifier`, forests and boosted trees; for other models
# :class:`~posteriori.TableEncoder` fills gaps and marks them.
