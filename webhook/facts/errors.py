"""
The error of a fact that a decision needs and that cannot be read now.
"""


class FactsUnavailable(Exception):
    """The decision needs a fact that cannot be read now; the user sees the message."""
