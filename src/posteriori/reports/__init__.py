"""What people read and see: evaluations and their page, plots, and a posterior calculated by hand."""

from posteriori.reports.displays import (
    ComparisonDisplay,
    ConfusionUtilityDisplay,
    DecisionRegionDisplay,
    PosteriorCheckDisplay,
    ReliabilityDisplay,
    UtilityCurveDisplay,
)
from posteriori.reports.evaluation import DecisionValue, Evaluation, Score, evaluate, score_probabilities
from posteriori.reports.page import Report, report
from posteriori.reports.walkthrough import Step, Walkthrough, walkthrough

__all__ = [
    "ComparisonDisplay",
    "ConfusionUtilityDisplay",
    "DecisionRegionDisplay",
    "DecisionValue",
    "Evaluation",
    "PosteriorCheckDisplay",
    "ReliabilityDisplay",
    "Report",
    "Score",
    "Step",
    "UtilityCurveDisplay",
    "Walkthrough",
    "evaluate",
    "report",
    "score_probabilities",
    "walkthrough",
]
