"""
Would the model have given these labels?
========================================

A posterior check draws new labels from the model, again and again, and compares numbers made of them with those of
the labels observed. A number that the model hardly ever gives shows what it has missed.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(0)
X = rng.normal(size=(600, 2))
y = (rng.random(600) < 1 / (1 + np.exp(-3 * X[:, 0] * X[:, 1]))).astype(int)  # a product, which no line can follow
X, X_new, y, y_new = X[:300], X[300:], y[:300], y[300:]

linear = po.BayesianSoftmaxRegression(0.01).fit(X, y)
products = po.BayesianSoftmaxRegression(0.01).fit(np.column_stack([X, X[:, 0] * X[:, 1]]), y)

# %%
# The check is made on new rows, and asks how well labels follow from the model that is supposed to have made them.
# Bands are of replicated labels, dots of those observed; an orange dot is outside.

fig, axes = plt.subplots(2, 1, figsize=(8.5, 5.6), sharex=True, layout="constrained")
po.PosteriorCheckDisplay.from_estimator(linear, X_new, y_new, name="without the product", ax=axes[0], random_state=0)
with_product = np.column_stack([X_new, X_new[:, 0] * X_new[:, 1]])
po.PosteriorCheckDisplay.from_estimator(
    products, with_product, y_new, name="with the product", ax=axes[1], random_state=0
)
axes[0].set_xlabel("")
for ax in axes:
    ax.set_ylabel("")
fig.suptitle("Observed labels beside labels that the model would give")
plt.show()

# %%
# **Take-away.** Check the model on new rows before you trust its intervals: they are right only if the model could have
# made the data.
