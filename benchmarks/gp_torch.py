"""Gaussian-process classifiers of GPyTorch: one layer or two, softmax likelihood, variational inference.

Only for processes that have GPyTorch: everything else imports this module where it is needed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import SoftmaxLikelihood
from gpytorch.means import ConstantMean, LinearMean
from gpytorch.mlls import DeepApproximateMLL, VariationalELBO
from gpytorch.models import ApproximateGP
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    IndependentMultitaskVariationalStrategy,
    VariationalStrategy,
)
from torch import Size, Tensor


def rbf(D: int, batch_shape: Size) -> ScaleKernel:
    """Return an RBF kernel with a lengthscale for every feature, at first the root of their number."""
    kernel = ScaleKernel(RBFKernel(ard_num_dims=D, batch_shape=batch_shape), batch_shape=batch_shape)
    kernel.base_kernel.lengthscale = D**0.5
    return kernel


class OneLayer(ApproximateGP):
    """K latents: each has a kernel and inducing inputs of its own, or all share them."""

    def __init__(self, Z: Tensor, K: int, *, shared: bool) -> None:
        own = Size([] if shared else [K])
        q = CholeskyVariationalDistribution(len(Z), batch_shape=Size([K]))
        inner = VariationalStrategy(self, Z.expand(*own, *Z.shape).clone(), q, learn_inducing_locations=True)
        super().__init__(IndependentMultitaskVariationalStrategy(inner, num_tasks=K))
        self.mean_module = ConstantMean(batch_shape=own)
        self.covar_module = rbf(Z.shape[1], own)

    def forward(self, X: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(X), self.covar_module(X))


class Layer(DeepGPLayer):
    """Nodes, each with a kernel and inducing inputs of its own, as the library's guide to deep processes has it."""

    def __init__(self, Z: Tensor, width: int, mean: Any) -> None:
        own = Size([width])
        q = CholeskyVariationalDistribution(len(Z), batch_shape=own)
        strategy = VariationalStrategy(self, Z.repeat(width, 1, 1), q, learn_inducing_locations=True)
        super().__init__(strategy, Z.shape[1], width)
        self.mean_module = mean
        self.covar_module = rbf(Z.shape[1], own)

    def forward(self, X: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(X), self.covar_module(X))


class TwoLayers(DeepGP):
    """A hidden layer about the leading principal axes of the inducing inputs, and a latent for every class."""

    def __init__(self, Z: Tensor, K: int, width: int) -> None:
        super().__init__()
        D = Z.shape[1]
        axes = torch.linalg.svd(Z - Z.mean(0), full_matrices=False)[2][:width]
        mean = LinearMean(D, batch_shape=Size([width]))
        with torch.no_grad():
            mean.weights.copy_(axes[:, :, None])
            mean.bias.zero_()
        self.hidden = Layer(Z, width, mean)
        self.last = Layer(Z @ axes.T, K, ConstantMean(batch_shape=Size([K])))

    def forward(self, X: Tensor) -> Any:
        return self.last(self.hidden(X))


class Training:
    """A model with its likelihood, rows and Adam, on the GPU if there is one."""

    def __init__(
        self,
        X: np.ndarray,
        y: np.ndarray,
        Z: np.ndarray,
        *,
        width: int | None = None,
        shared: bool = False,
        rate: float = 0.01,
        n_samples: int = 10,
        dtype: str = "float32",
    ) -> None:
        torch.manual_seed(0)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.dtype, self.n_samples = getattr(torch, dtype), n_samples
        self.X, self.y = self._tensor(X), torch.as_tensor(y, device=self.device)
        K = int(y.max()) + 1
        Z = self._tensor(Z)
        model = OneLayer(Z, K, shared=shared) if width is None else TwoLayers(Z, K, min(width, *Z.shape))
        self.model = model.to(self.device, self.dtype)
        self.likelihood = SoftmaxLikelihood(num_features=K, num_classes=K, mixing_weights=False)
        bound = VariationalELBO(self.likelihood, self.model, num_data=len(X))
        self.bound = bound if width is None else DeepApproximateMLL(bound)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=rate)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, dtype=self.dtype, device=self.device)

    def _sampled(self, n_samples: int) -> AbstractContextManager[Any]:
        return gpytorch.settings.num_likelihood_samples(n_samples)

    def step(self, rows: Any) -> float | Tensor:
        """Take a step of Adam on some rows; return the bound, which may not be computed yet."""
        self.adam.zero_grad()
        with self._sampled(self.n_samples):
            loss = -self.bound(self.model(self.X[rows]), self.y[rows])
        loss.backward()
        self.adam.step()
        return -loss.detach()

    def wait(self) -> None:
        """Wait until all steps are done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def predict_proba(self, X: np.ndarray, n_samples: int = 64) -> np.ndarray:
        """Return class probabilities averaged over samples, (n, K)."""
        self.model.eval()
        with torch.no_grad(), self._sampled(n_samples):
            P = self.likelihood(self.model(self._tensor(X))).probs
        return P.reshape(-1, *P.shape[-2:]).mean(0).double().cpu().numpy()
