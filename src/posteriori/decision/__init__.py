"""From probabilities to actions, and the scores that say whether the probabilities deserve trust: pure functions."""

from posteriori.decision.deciding import Decisions, decide
from posteriori.decision.utility import Utility

__all__ = ["Decisions", "Utility", "decide"]
