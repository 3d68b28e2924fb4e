"""
Sets that hold the true class
=============================

By conformal prediction, :class:`~posteriori.ConformalClassifier` predicts sets of classes. They miss the true class
with a probability of at most alpha, even if the model is wrong, as long as new rows are like the old. A better model
gives smaller sets.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import posteriori as po

X, y = load_digits(return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=8, size=X.shape)  # noise makes the digits hard to read

columns = {"all 64 pixels": slice(None), "16 pixels in the middle": slice(24, 40)}

# %%
# The promise is about the average over all ways to split the rows, so the picture shows averages over ten splits.
# Left, how often the sets miss; right, how many digits they hold. The same model sees all pixels, or 16 of them.

alphas = [0.02, 0.05, 0.1, 0.2, 0.3]
fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
for k, (name, seen) in enumerate(columns.items()):
    missed, sizes = np.zeros((2, 10, len(alphas)))
    for seed in range(10):
        rows, rows_new, labels, labels_new = train_test_split(X[:, seen], y, test_size=0.5, random_state=seed)
        model = po.ConformalClassifier(po.GaussianClassifier("tied"), random_state=seed).fit(rows, labels)
        sets = [model.predict_set(rows_new, alpha=alpha) for alpha in alphas]
        missed[seed] = [1 - each.coverage(labels_new) for each in sets]
        sizes[seed] = [each.sizes.mean() for each in sets]
    left.plot(alphas, missed.mean(axis=0), "o-", color=f"C{k}", label=name)
    right.plot(alphas, sizes.mean(axis=0), "o-", color=f"C{k}", label=name)
left.plot([0, 0.32], [0, 0.32], color="0.6", linewidth=1, zorder=0)
left.set(xlabel="alpha", ylabel="share of sets that miss", title="Both miss as often as they may")
right.set(xlabel="alpha", ylabel="digits in a set, mean", title="The better model has smaller sets", ylim=(0, None))
right.legend(loc="upper right")
plt.show()

# %%
# **Take-away.** The promise costs nothing but rows set aside; how useful the sets are depends on the model.
