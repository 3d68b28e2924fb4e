"""What people read and see: plots, and the calculation of a posterior written out with its numbers."""

from posteriori.reports.displays import (
    ConfusionUtilityDisplay,
    DecisionRegionDisplay,
    ReliabilityDisplay,
    UtilityCurveDisplay,
)
from posteriori.reports.walkthrough import Step, Walkthrough, walkthrough

__all__ = [
    "ConfusionUtilityDisplay",
    "DecisionRegionDisplay",
    "ReliabilityDisplay",
    "Step",
    "UtilityCurveDisplay",
    "Walkthrough",
    "walkthrough",
]
