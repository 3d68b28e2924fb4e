"""Command line of the benchmarks: ``python -m benchmarks [softmax|passes|scaling|all]``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks import problems


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Benchmarks of posteriori.")
    parser.add_argument("what", nargs="?", default="all", choices=("softmax", "passes", "scaling", "all"))
    parser.add_argument("--data", type=Path, help="folder with mnist.npz and letter.npz (keys X, y, split)")
    parser.add_argument(
        "--problems",
        help="names separated by commas, of: " + ", ".join((*problems.PROBLEMS, *problems.FILES)),
    )
    parser.add_argument("--budget", type=float, default=120.0, help="seconds per problem for each solver of the peer")
    parser.add_argument("--quick", action="store_true", help="only small problems, to try the benchmarks themselves")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder for the results")
    options = parser.parse_args()

    default = problems.QUICK if options.quick else problems.ALL
    names = options.problems.split(",") if options.problems else default
    if unknown := set(names) - {*problems.PROBLEMS, *problems.FILES}:
        parser.error(f"--problems has unknown names: {', '.join(sorted(unknown))}")

    if hasattr(os, "getloadavg") and (load := os.getloadavg()[0]) > 0.5:
        print(f"The machine is busy (load {load:.1f}): times are for a machine that does nothing else.")

    # Imported here because every worker process imports this module again.
    from benchmarks import passes, scaling, softmax

    if options.what in ("softmax", "all"):
        softmax.run(names, options.data, options.out, options.budget)
    if options.what in ("passes", "all"):
        passes.run(options.out, quick=options.quick)
    if options.what in ("scaling", "all"):
        scaling.run(options.out, options.budget, quick=options.quick)


if __name__ == "__main__":
    main()
