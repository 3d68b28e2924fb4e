"""
Digits that a Gaussian process finds odd
========================================

Which handwritten digits would you look at again? Each digit is predicted by a model that has not seen it (``loo``). Those
whose own label is least probable are badly written, or labelled wrongly.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import posteriori as po

digits = load_digits()
X, y = digits.data[:500], digits.target[:500]
model = po.GPClassifier(random_state=0).fit(X, y)
left = model.loo()

# %%
# The ten digits with the least probable labels, and what the model takes them for.

P = np.exp(left.log_proba)
own = P[np.arange(len(P)), y[left.rows]]
odd = np.argsort(own)[:10]
print(f"log-loss of left-out digits {left.log_loss:.3f}, of which {len(left.unreliable)} are unreliable")

fig, axes = plt.subplots(2, 5, figsize=(9, 4.6), layout="constrained")
for ax, i in zip(axes.flat, odd, strict=True):
    row = left.rows[i]
    ax.imshow(digits.images[row], cmap="Greys", interpolation="nearest")
    guess = P[i].argmax()
    ax.set_title(f"labelled {y[row]}: {own[i]:.0%}\nseen as {guess}: {P[i, guess]:.0%}")
    ax.axis("off")
fig.suptitle("The ten digits whose labels surprise a Gaussian process most")
plt.show()

# %%
# **Take-away.** Left-out probabilities find the rows worth a second look; probabilities of rows that the model has learned do
# not.
