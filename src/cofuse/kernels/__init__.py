"""The hot loops: `reference` in plain NumPy, the oracle; `cpu`, the same functions compiled."""
