"""Command line of the benchmarks: ``python -m benchmarks [WHAT]``, WHAT as in ``--help``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks import problems

POINT = ("softmax", "passes", "scaling")
BAYES = ("price", "quality", "wide", "prior-strength", "blocks", "laplace-torch", "honesty", "coverage")
GAUSSIAN = ("gaussian-parameters", "gaussian-speed", "gaussian-quality")
LEFT_OUT = ("left-out", "stack")
DECISIONS = ("deciding", "conformal", "calibration", "calibration-maps")
GP = ("gp-quality", "gp-time", "gp-coverage", "gp-kernels", "gp-folds", "gp-steps", "gp-digits", "gp-mnist", "gp-depth")
ENGINES = ("same-answer", "gpu", "out-of-core", "against-spark")
SERVER = ("serving", "serving-faults")
COMMANDS = ("commands", "fit-folder", *SERVER)
VERSIONS = ("before-after",)

WHAT = """\
of SoftmaxRegression:
  softmax        seconds to a certified optimum, against scikit-learn at its best
  passes         one pass over the data, against its two matrix products
  scaling        time and memory against the number of rows
of BayesianSoftmaxRegression:
  price          mode, covariance and evidence, against scikit-learn's default point estimate
  quality        log-loss of test rows, against LogisticRegressionCV (more sets with --data)
  wide           the same where parameters are many and rows few (more sets with --data)
  prior-strength coverage of intervals with all defaults, where the prior's strength is not known
  blocks         categories of many levels: one strength per block, against one for all, ARD and LogisticRegressionCV
                 (flights with --data)
  laplace-torch  the same posterior by laplace-torch; predictions with 1,000 classes
  honesty        predictive probabilities and intervals, against NUTS by NumPyro
  coverage       intervals in simulation with a known prior (--datasets)
  bayes          these six
of GaussianClassifier:
  gaussian-parameters  those of maximum likelihood, against GaussianNB, LDA and QDA
  gaussian-speed       seconds to fit and to predict, against the same
  gaussian-quality     log-loss of test rows, against the same (more sets with --data)
  gaussian             these three
of rows left out:
  left-out             loo() against fits without each row (more sets with --data; --jobs)
  stack                StackedClassifier against its members, and scikit-learn's stack (more sets with --data; --jobs)
  left-out-rows        these two
of decisions:
  deciding             expected utilities, against their matrix product
  conformal            coverage of prediction sets, against its law (more sets with --data)
  calibration          log-loss of new rows before and after calibration, against scikit-learn's
  calibration-maps     log-loss after maps that learn from the same left-out rows, against probmetrics and scikit-learn
                       (more sets with --data)
  decisions            these four
of GPClassifier and DeepGPClassifier:
  gp-quality           log-loss and error of test rows, against boosting (more sets with --data)
  gp-time              seconds of a fresh process, against scikit-learn and GPflow (more sets with --data)
  gp-coverage          intervals where functions are drawn from Gaussian processes (--datasets, --jobs)
  gp-kernels           the kernel that is learned in little time, against one learned with all rows (needs --data)
  gp-folds             the literature's fixed splits, against tuned kernel logistic regression (needs --data)
  gp-steps             milliseconds of a training step, against GPyTorch, on JAX's default device
  gp-digits            digits from a fresh process, against GPflow and GPyTorch (--peer-python)
  gp-mnist             MNIST, one layer and two, on JAX's default device (needs --data)
  gp-depth             two layers against one, also in equal time (more sets with --data; --folds, --limit, --jobs)
  gp                   these nine
of rows elsewhere than in memory:
  same-answer          differences between fits in memory, sparse, from Parquet, by Dask and on a GPU
  gpu                  milliseconds of fits to rows on a GPU, against scikit-learn on the same card
  out-of-core          a Parquet file of 50 million rows: seconds, passes and memory
  against-spark        softmax regression, against Spark MLlib on this machine (--peer-python)
  engines              these four
of the command line:
  commands             fit and predict on a large CSV, against reading it and fitting in memory
  fit-folder           fit and predict on a folder of Parquet files of 5 GB: seconds, passes and memory
  serving              posteriori serve under load: requests and rows per second, memory; MLServer and MLflow beside
                       it (--peer-python)
  serving-faults       the same when clients, files and signals misbehave
  server               these two, in six minutes or so
of two versions of posteriori:
  before-after         seconds of fits and predictions of the sources in --before, against those of src/
all: everything but before-after
Data that nobody prepared have a command of their own: python -m benchmarks.wild --help"""


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Benchmarks of posteriori.",
        epilog=WHAT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "what",
        nargs="?",
        default="all",
        choices=(
            *POINT,
            *BAYES,
            "bayes",
            *GAUSSIAN,
            "gaussian",
            *LEFT_OUT,
            "left-out-rows",
            *DECISIONS,
            "decisions",
            *GP,
            "gp",
            *ENGINES,
            "engines",
            *COMMANDS,
            "server",
            *VERSIONS,
            "all",
        ),
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with NAME.npz: mnist, letter (X, y, split), others (X, y); flights.csv.zip for blocks",
    )
    parser.add_argument(
        "--problems",
        help="only these, names separated by commas, of: "
        + ", ".join((*problems.PROBLEMS, *problems.FILES, *problems.GAUSSIAN))
        + ", and what is in the folder --data",
    )
    parser.add_argument("--budget", type=float, default=120.0, help="seconds per problem for each solver of the peer")
    parser.add_argument(
        "--datasets",
        type=int,
        help="simulated data sets of coverage and prior-strength (400), of gp-coverage (200), of each kind",
    )
    parser.add_argument(
        "--jobs", type=int, help="processes of left-out, stack, gp-coverage and gp-depth; as many as there are cores"
    )
    parser.add_argument("--folds", type=int, help="gp-depth: only the first so many of the five folds")
    parser.add_argument("--limit", type=float, default=60.0, help="gp-depth: seconds of each DeepGPClassifier()")
    parser.add_argument("--go-on", action="store_true", help="gp-coverage: keep the data sets that --out already has")
    parser.add_argument(
        "--peer-python",
        action="append",
        default=[],
        metavar="PATH",
        help="an interpreter in which gp-digits and gp-time look for GPflow and GPyTorch, against-spark for pyspark, "
        "serving for MLServer and MLflow, after this one; as often as needed",
    )
    parser.add_argument("--before", type=Path, help="folder of sources (src) of another version, for before-after")
    parser.add_argument("--without-peers", action="store_true", help="gp-folds: ours alone; the peer's search is long")
    parser.add_argument("--quick", action="store_true", help="only small problems, to try the benchmarks themselves")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder for the results")
    options = parser.parse_args()

    asked = tuple(options.problems.split(",")) if options.problems else None
    groups = {
        "all": (*POINT, *BAYES, *GAUSSIAN, *LEFT_OUT, *DECISIONS, *GP, *ENGINES, *COMMANDS),
        "bayes": BAYES,
        "gaussian": GAUSSIAN,
        "left-out-rows": LEFT_OUT,
        "decisions": DECISIONS,
        "gp": GP,
        "engines": ENGINES,
        "server": SERVER,
    }
    what = groups.get(options.what, (options.what,))
    if hasattr(os, "getloadavg") and (load := os.getloadavg()[0]) > 0.5:
        print(f"The machine is busy (load {load:.1f}): times are for a machine that does nothing else.")

    # Imported here because every worker process imports this module again.
    from benchmarks import (
        against_laplace_torch,
        against_spark,
        blocks,
        calibration,
        calibration_maps,
        conformal,
        coverage,
        deciding,
        gaussian_parameters,
        gaussian_quality,
        gaussian_speed,
        gp_coverage,
        gp_depth,
        gp_digits,
        gp_folds,
        gp_kernels,
        gp_mnist,
        gp_quality,
        gp_steps,
        gp_time,
        gpu,
        honesty,
        left_out,
        out_of_core,
        passes,
        price,
        prior_strength,
        quality,
        same_answer,
        scaling,
        softmax,
        stack,
        wide,
    )

    in_folder = () if options.data is None else tuple(path.stem for path in options.data.glob("*.npz"))
    known = {*problems.PROBLEMS, *problems.FILES, *problems.GAUSSIAN, *in_folder, "1000-classes"}
    known |= {*gp_depth.MADE, *gp_folds.REFERENCE, *gp_steps.SIZES, *gp_time.MADE, *wide.MADE}
    if unknown := {*(asked or ())} - known:
        parser.error(f"--problems has unknown names: {', '.join(sorted(unknown))}")

    quick, out = options.quick, options.out
    if "softmax" in what:
        softmax.run(asked or (problems.QUICK if quick else problems.ALL), options.data, out, options.budget)
    if "passes" in what:
        passes.run(out, quick=quick)
    if "scaling" in what:
        scaling.run(out, options.budget, quick=quick)
    if "price" in what:
        names = price.QUICK if quick else price.PROBLEMS
        price.run([name for name in names if asked is None or name in asked], out, options.budget)
    if "quality" in what:
        quality.run(asked, options.data, out, quick=quick)
    if "wide" in what:
        wide.run(asked, options.data, out, quick=quick)
    if "prior-strength" in what:
        prior_strength.run(out, datasets(options, 400, 20), quick=quick)
    if "blocks" in what:
        blocks.run(options.data, out, quick=quick)
    if "laplace-torch" in what:
        against_laplace_torch.run(asked, out, quick=quick)
    if "honesty" in what:
        honesty.run(asked, options.data, out, quick=quick)
    if "coverage" in what:
        coverage.run(out, datasets(options, 400, 20))
    if "gaussian-parameters" in what:
        gaussian_parameters.run(asked, options.data, out, quick=quick)
    if "gaussian-speed" in what:
        names = gaussian_speed.QUICK if quick else gaussian_speed.PROBLEMS
        gaussian_speed.run([name for name in names if asked is None or name in asked], out, quick=quick)
    if "gaussian-quality" in what:
        gaussian_quality.run(asked, options.data, out, quick=quick)
    if "left-out" in what:
        left_out.run(asked, options.data, out, options.jobs, quick=quick)
    if "stack" in what:
        stack.run(asked, options.data, out, options.jobs, quick=quick)
    if "deciding" in what:
        deciding.run(out, quick=quick)
    if "conformal" in what:
        conformal.run(asked, options.data, out, quick=quick)
    if "calibration" in what:
        calibration.run(out, quick=quick)
    if "calibration-maps" in what:
        calibration_maps.run(asked, options.data, out, quick=quick)
    if "gp-quality" in what:
        gp_quality.run(asked, options.data, out, quick=quick)
    if "gp-time" in what:
        gp_time.run(asked, options.data, out, options.peer_python, quick=quick)
    if "gp-coverage" in what:
        number = datasets(options, gp_coverage.DATASETS, 4)
        gp_coverage.run(out, number, options.jobs, go_on=options.go_on, quick=quick)
    if "gp-kernels" in what:
        gp_kernels.run(asked, options.data, out, quick=quick)
    if "gp-folds" in what:
        gp_folds.run(asked, options.data, out, quick=quick, peers=not options.without_peers)
    if "gp-steps" in what:
        gp_steps.run(asked, out, options.budget, quick=quick)
    if "gp-digits" in what:
        gp_digits.run(out, options.peer_python, quick=quick)
    if "gp-mnist" in what:
        gp_mnist.run(options.data, out, quick=quick)
    if "gp-depth" in what:
        gp_depth.run(asked, options.data, out, options.folds, options.limit, options.jobs, quick=quick)
    if "same-answer" in what:
        same_answer.run(out, quick=quick)
    if "gpu" in what:
        gpu.run(out, quick=quick)
    if "out-of-core" in what:
        out_of_core.run(out, quick=quick)
    if "against-spark" in what:
        against_spark.run(out, options.peer_python, quick=quick)
    if "commands" in what:
        from benchmarks import commands  # which needs pyarrow, as no other does

        commands.run(out, quick=quick)
    if "fit-folder" in what:
        from benchmarks import fit_folder

        fit_folder.run(out, quick=quick)
    if "serving" in what:
        from benchmarks import serving

        serving.run(out, options.peer_python, quick=quick)
    if "serving-faults" in what:
        from benchmarks import serving_faults

        serving_faults.run(out, quick=quick)
    if "before-after" in what:
        from benchmarks import before_after

        if options.before is None:
            parser.error("before-after needs --before: the folder src of another version, from `git worktree add`.")
        before_after.run(options.before, out, quick=quick)


def datasets(options: argparse.Namespace, default: int, quick: int) -> int:
    """Return the number of simulated data sets: as asked or the default, and not more than enough for a trial."""
    asked = default if options.datasets is None else options.datasets
    return min(quick, asked) if options.quick else asked


if __name__ == "__main__":
    main()
