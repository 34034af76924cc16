"""Where the documentation's figures come from. Run as ``python -m experiments.NAME``."""
