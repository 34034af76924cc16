"""The one exception for mistakes a user can mend."""

__all__ = ["CofuseError"]


class CofuseError(Exception):
    """Bad input: says what came, what was expected and the remedy, in one line."""
