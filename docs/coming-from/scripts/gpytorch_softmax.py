"""The GPyTorch side of docs/coming-from/gpflow-gpytorch.md.

From this folder, ``python gpytorch_softmax.py > ../recorded/gpytorch_softmax.txt``
prints what the page shows, and writes the numbers with all digits to
../recorded/gpytorch_softmax.json.
"""

import json
from importlib.metadata import version
from pathlib import Path

import gpytorch
import torch
from sklearn.datasets import load_iris

HERE = Path(__file__).parent
LENGTHSCALE, VARIANCE = 1.0, 4.0


class Latents(gpytorch.models.ApproximateGP):
    """Three independent functions of one kernel, seen through all rows of the fit."""

    def __init__(self, Z: torch.Tensor) -> None:
        n_classes, M = 3, len(Z)
        variational = gpytorch.variational.CholeskyVariationalDistribution(M, batch_shape=torch.Size([n_classes]))
        inner = gpytorch.variational.VariationalStrategy(self, Z, variational, learn_inducing_locations=False)
        super().__init__(gpytorch.variational.IndependentMultitaskVariationalStrategy(inner, num_tasks=n_classes))
        self.mean = gpytorch.means.ZeroMean(batch_shape=torch.Size([n_classes]))
        self.covariance = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        self.covariance.outputscale, self.covariance.base_kernel.lengthscale = VARIANCE, LENGTHSCALE
        self.covariance.requires_grad_(False)

    def forward(self, X: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at X."""
        return gpytorch.distributions.MultivariateNormal(self.mean(X), self.covariance(X))


def main() -> None:
    """Climb the variational bound with the kernel as given, and write bound and probabilities."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    X, y = load_iris(return_X_y=True)
    X, y = torch.tensor(X[:, 2:]), torch.tensor(y)
    train = torch.arange(len(X)) % 2 == 0
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=3, mixing_weights=False)
    model = Latents(X[train])
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=int(train.sum()))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1500, 1e-4)
    for _ in range(1500):
        optimizer.zero_grad()
        with gpytorch.settings.num_likelihood_samples(64):
            loss = -bound(model(X[train]), y[train])
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(20_000):
        final = float(bound(model(X[train]), y[train])) * int(train.sum())
        probabilities = likelihood(model(X[~train])).probs.mean(0)
    print(f"bound on the log evidence {final:.3f}")
    print(f"log-loss of the other rows {-probabilities[torch.arange(75), y[~train]].log().mean():.4f}")
    print("probabilities of rows 26, 35, 60")
    print(probabilities[[26, 35, 60]].numpy().round(3))
    versions = {name: version(name) for name in ("gpytorch", "torch")}
    print("versions", *(f"{name} {number}" for name, number in versions.items()))
    numbers = {"versions": versions, "bound": final, "probabilities": probabilities.tolist()}
    (HERE.parent / "recorded" / "gpytorch_softmax.json").write_text(json.dumps(numbers) + "\n")


if __name__ == "__main__":
    main()
