"""
A stack weighs its members
==========================

Here the class of a row depends on two things: on the product of two features, and on the sum of six others. Gaussian
classes are good at the sum, boosted trees at the product. :class:`~posteriori.StackedClassifier` fits every member
once, and gives each the weight under which left-out rows are predicted best.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(1)
X = rng.normal(size=(500, 8))
product = X[:, 0] * X[:, 1] > 0
total = 2 * X[:, 2:].sum(axis=1) + rng.logistic(size=500) > 0
y = 2 * product + total  # four classes

stack = po.StackedClassifier(
    {
        "softmax": po.SoftmaxRegression(),
        "Gaussian classes": po.GaussianClassifier(),
        "forest": po.ForestClassifier(n_trees=150, random_state=0),
        "boosted trees": po.BoostingClassifier(max_rounds=150, random_state=0),
    },
    random_state=0,
).fit(X, y)

# %%
# ``members_`` has the weight and the left-out log-loss of each; ``left_out_`` has that of the stack itself.

names = [member.name for member in stack.members_]
weights = [member.weight for member in stack.members_]
losses = [member.log_loss for member in stack.members_]

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
left.barh(names, weights, color="C0")
left.set(xlim=(0, 1), xlabel="weight", title="Weights of the members")
left.invert_yaxis()
right.plot(losses, names, "o", color="C1")
right.axvline(stack.left_out_.log_loss, color="C2", label="the stack")
right.set(xlabel="log-loss of left-out rows, nats", title="Members against their stack")
right.legend(loc="lower right")
plt.show()

gain = stack.gain_
print(f"better than its best member, {gain.best}, by {gain.difference:.3f} +- {gain.error:.3f} nats a row")

# %%
# **Take-away.** Models that are wrong about different rows are better together, and left-out rows say in which shares.
# Where one model is best everywhere, a stack gains little or nothing.
