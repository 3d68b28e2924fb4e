"""Moons and rings: where a Gaussian process is sure, and where it knows that it does not know.

Two pictures of each set: the most probable class with the probability of it as depth of colour, and the epistemic
uncertainty, which grows away from the rows.

    python examples/rings.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import make_moons

import posteriori as po

COLOURS = ("#0072b2", "#d55e00", "#009e73")


def moons(seed=0):
    """Two half circles with noise."""
    return make_moons(120, noise=0.15, random_state=seed)


def rings(seed=0):
    """A disc and two rings around it."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], 60)
    radius = np.array([0.35, 1.2, 2.1])[y] + 0.15 * rng.normal(size=len(y))
    angle = rng.uniform(0, 2 * np.pi, len(y))
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), y


def grid(X, margin=1.5, size=81):
    """Points of a square around the rows: the axis of each side, and all pairs (size^2, 2)."""
    low, high = X.min() - margin, X.max() + margin
    axis = np.linspace(low, high, size)
    return axis, np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def picture(axes, model, X, y):
    """Draw classes on the left, uncertainty on the right."""
    from matplotlib.colors import to_rgb

    axis, points = grid(X)
    P = model.predict_proba(points)
    epistemic = model.uncertainty(points).epistemic.reshape(len(axis), -1)
    best, strength = P.argmax(axis=1), (P.max(axis=1) - 1 / P.shape[1]) / (1 - 1 / P.shape[1])
    hue = np.array([to_rgb(colour) for colour in COLOURS])[best]
    image = (1 - 0.65 * strength[:, None]) + 0.65 * strength[:, None] * hue
    extent = (axis[0], axis[-1], axis[0], axis[-1])
    axes[0].imshow(image.reshape(len(axis), -1, 3), origin="lower", extent=extent, interpolation="bilinear")
    shown = axes[1].imshow(epistemic, origin="lower", extent=extent, cmap="Greys", interpolation="bilinear", vmin=0)
    axes[1].figure.colorbar(shown, ax=axes[1], label="epistemic uncertainty, nats", shrink=0.8)
    for ax in axes:
        for k, colour in enumerate(COLOURS[: P.shape[1]]):
            ax.scatter(*X[y == k].T, s=12, color=colour, edgecolors="white", linewidths=0.4, label=f"class {k}")
        ax.set(xticks=[], yticks=[])
    axes[0].set_title("probability of the best class")
    axes[1].set_title("what more rows would tell")
    axes[0].legend(loc="upper left", fontsize=8)


def main(folder="."):
    """Fit both sets, print what was learned and write moons.png and rings.png."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    for name, (X, y) in {"moons": moons(), "rings": rings()}.items():
        model = po.GPClassifier(random_state=0).fit(X, y)
        near, far = (model.uncertainty(at).epistemic.mean() for at in (X, 20 * X.std(axis=0) * np.eye(2)))
        path = Path(folder) / f"{name}.png"
        fig, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
        picture(axes, model, X, y)
        fig.savefig(path, dpi=110)
        plt.close(fig)
        print(
            f"{name}: accuracy {model.score(X, y):.3f}, log evidence {model.log_evidence_:.1f}, "
            f"epistemic uncertainty {near:.3f} at the rows, {far:.3f} far away; {path}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
