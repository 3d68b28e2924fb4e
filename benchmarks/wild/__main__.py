"""Data that nobody prepared: tables that public packages ship, and random hard problems."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def main() -> int:
    """Parse the arguments and run; 1 if something is to be mended."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wild", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("all", "tables", "fuzz"), default="all")
    parser.add_argument("--tables", type=int, help="as many tables of the first package, at random; all by default")
    parser.add_argument("--models", default="bayes,gaussian", help="what to fit to tables, separated by commas")
    parser.add_argument("--folder", type=Path, default=Path(".wild"), help="where the packages are unpacked")
    parser.add_argument("--cases", type=int, default=5_000, help="how many random problems")
    parser.add_argument("--case", type=int, help="only the random problem of this number, in this process")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many processes")
    parser.add_argument("--seed", type=int, default=0, help="the seed of all that is random")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results", help="folder of the results")
    options = parser.parse_args()
    from benchmarks.wild import commands, fuzz

    sound = True
    if options.what != "fuzz":
        models = options.models.split(",")
        sound &= commands.run(
            options.out, options.folder, most_tables=options.tables, models=models, jobs=options.jobs, seed=options.seed
        )
    if options.what != "tables":
        sound &= fuzz.run(options.out, options.cases, options.seed, options.jobs, options.case)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
