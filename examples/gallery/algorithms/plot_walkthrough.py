"""
A Bayesian classification by hand
=================================

:func:`~posteriori.walkthrough` carries out a small Bayesian classification step by step, with numbers that a pocket
calculator can check: six mornings, the fall of the barometer overnight, and the weather that followed. Here are its
Newton iterations, its predictive probabilities and its decision in one picture.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

by_hand = po.walkthrough()
text = str(by_hand)
print(text[text.index("## 16. The decision") :])

# %%
# Every number of a step can be read by its name, in full precision.

objective = np.asarray(by_hand["iterations"].values["objective"])
plug_in = np.asarray(by_hand["plug_in"].values["p"]).ravel()
averaged = np.asarray(by_hand["monte_carlo"].values["p"]).ravel()
expected = np.asarray(by_hand["utility"].values["expected_utility"])

fig, axes = plt.subplots(1, 3, figsize=(9.5, 3.7), layout="constrained")
axes[0].semilogy(objective - objective.min() + 1e-16, "o-")
axes[0].set(xlabel="Newton iteration", ylabel="above the minimum, nats", title="Newton's method", ylim=(1e-14, 10))
place = np.arange(3)
axes[1].bar(place - 0.2, plug_in, 0.4, label="mode")
axes[1].bar(place + 0.2, averaged, 0.4, label="average of 8 draws")
axes[1].set_xticks(place, ["dry", "rain", "storm"])
axes[1].set(ylabel="probability", title="The seventh morning", ylim=(0, 1))
axes[1].legend(loc="upper left")
axes[2].barh(["walk", "umbrella", "bus", "stay"], expected, color="C2")
axes[2].invert_yaxis()
axes[2].axvline(0, color="0.6", linewidth=1)
fig.suptitle("From the fit to the decision: take the bus")
axes[2].set(xlabel="expected utility", title="What to do")
plt.show()

# %%
# **Take-away.** The whole calculation, from the prior to the decision, fits on a few pages that anyone can check.
