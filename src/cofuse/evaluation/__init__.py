"""Measuring and comparing: metrics, the methods to compare with, scenes with a known truth."""
