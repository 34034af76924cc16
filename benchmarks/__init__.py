"""Timings: compared within one run, in CPU seconds. Run as ``python -m benchmarks.NAME``."""
