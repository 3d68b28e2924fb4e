"""
Digits that a Gaussian process finds odd
========================================

Which handwritten digits would you look at again? Each digit is predicted by a model that has not seen it (``loo``).
Those whose own label is least probable are badly written, or labelled wrongly.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import posteriori as po

digits = load_digits()
X, y = digits.data[:300], digits.target[:300]

model = po.GPClassifier(n_learning=150, random_state=0).fit(X, y)  # the kernel is learned from 150 rows
left = model.loo()

# %%
# The eight digits with the least probable labels, and what the model takes them for.

P = np.exp(left.log_proba)
own = P[np.arange(len(P)), y[left.rows]]
odd = np.argsort(own)[:8]
print(f"log-loss of left-out digits: {left.log_loss:.3f} +- {left.log_loss_error:.3f}")

fig, axes = plt.subplots(2, 4, figsize=(8, 5.4), layout="constrained")
for ax, i in zip(axes.flat, odd, strict=True):
    row = left.rows[i]
    ax.imshow(digits.images[row], cmap="Greys", interpolation="nearest")
    guess = P[i].argmax()
    ax.set_title(f"label {y[row]}: {own[i]:.0%}\nmodel {guess}: {P[i, guess]:.0%}", fontsize=11)
    ax.axis("off")
fig.suptitle("The eight digits whose labels surprise a Gaussian process most")
plt.show()

# %%
# **Take-away.** Left-out probabilities find the rows worth a second look; probabilities of rows that the model has
# learned do not.
