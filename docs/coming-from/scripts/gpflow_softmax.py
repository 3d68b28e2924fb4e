"""The GPflow side of docs/coming-from/gpflow-gpytorch.md.

From this folder, ``python gpflow_softmax.py > ../recorded/gpflow_softmax.txt``
prints what the page shows, and writes the numbers with all digits to
../recorded/gpflow_softmax.json.
"""

import json
from importlib.metadata import version
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_iris

HERE = Path(__file__).parent
LENGTHSCALE, VARIANCE = 1.0, 4.0


def main() -> None:
    """Climb the variational bound with the kernel as given, and write bound and probabilities."""
    tf.random.set_seed(0)
    X, y = load_iris(return_X_y=True)
    X = X[:, 2:]
    train = np.arange(len(X)) % 2 == 0
    rows = (X[train], y[train, None])
    kernel = gpflow.kernels.RBF(variance=VARIANCE, lengthscales=LENGTHSCALE)
    gpflow.set_trainable(kernel, False)
    likelihood = gpflow.likelihoods.Softmax(3)
    likelihood.num_monte_carlo_points = 64
    model = gpflow.models.VGP(rows, kernel, likelihood, num_latent_gps=3)
    optimizer = tf.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(0.05, 1500, 1e-3))

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )

    for _ in range(1500):
        step()
    likelihood.num_monte_carlo_points = 20_000
    bound = float(model.elbo())
    probabilities = model.predict_y(X[~train])[0].numpy()
    print(f"bound on the log evidence {bound:.3f}")
    print(f"log-loss of the other rows {-np.log(probabilities[np.arange(75), y[~train]]).mean():.4f}")
    print("probabilities of rows 26, 35, 60")
    print(probabilities[[26, 35, 60]].round(3))
    versions = {name: version(name) for name in ("gpflow", "tensorflow-cpu")}
    print("versions", *(f"{name} {number}" for name, number in versions.items()))
    numbers = {"versions": versions, "bound": bound, "probabilities": probabilities.tolist()}
    (HERE.parent / "recorded" / "gpflow_softmax.json").write_text(json.dumps(numbers) + "\n")


if __name__ == "__main__":
    main()
