"""What people read: the calculation of a posterior, written out with its numbers."""

from posteriori.report.walkthrough import Step, Walkthrough, walkthrough

__all__ = ["Step", "Walkthrough", "walkthrough"]
