"""The hot loops, each in plain NumPy, the oracle, and fast.

Of operators on patches: `reference`, and `cpu`, the same functions compiled. `pictures` reads
frames.
"""
