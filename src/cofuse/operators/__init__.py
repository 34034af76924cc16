"""The analysis operator, and the letter's mathematics on it."""

from cofuse.operators.operator import (
    SHIPPED_OPERATORS,
    AnalysisOperator,
    coherence,
    load_operator,
    operator_bytes,
    read_operator,
)

__all__ = [
    "SHIPPED_OPERATORS",
    "AnalysisOperator",
    "coherence",
    "load_operator",
    "operator_bytes",
    "read_operator",
]
