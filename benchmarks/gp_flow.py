"""GPflow's sparse variational classifier, whose largest latent wins (RobustMax).

Only for processes that have GPflow: everything else imports this module where it is needed.
"""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf


class Training:
    """A model with its rows and Adam, one compiled step at a time, on one thread."""

    def __init__(self, X: np.ndarray, y: np.ndarray, Z: np.ndarray, *, rate: float = 0.01) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        D, K = X.shape[1], int(y.max()) + 1
        self.X, self.y = tf.constant(X), tf.constant(y[:, None])
        self.model = gpflow.models.SVGP(
            gpflow.kernels.SquaredExponential(lengthscales=np.full(D, D**0.5)),
            gpflow.likelihoods.MultiClass(K),
            Z.copy(),
            num_latent_gps=K,
            num_data=len(X),
        )
        self.adam = tf.keras.optimizers.Adam(rate)
        self._compiled = tf.function(self._step, input_signature=[tf.TensorSpec([None], tf.int64)])

    def _step(self, rows: tf.Tensor) -> tf.Tensor:
        batch = (tf.gather(self.X, rows), tf.gather(self.y, rows))
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = self.model.training_loss(batch)
        self.adam.apply_gradients(list(zip(tape.gradient(loss, variables), variables, strict=True)))
        return -loss

    def step(self, rows: np.ndarray) -> tf.Tensor:
        """Take a step of Adam on some rows; return the bound."""
        return self._compiled(tf.constant(rows))

    def wait(self) -> None:
        """Nothing to wait for: a step returns when it is done."""

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return class probabilities averaged over the posterior, (n, K); those of a row add up to about one."""
        return self.model.predict_y(X)[0].numpy()
