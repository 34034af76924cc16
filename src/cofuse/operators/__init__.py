"""The analysis operator, and the letter's mathematics on it."""

from cofuse.operators.operator import (
    SHIPPED_OPERATORS,
    AnalysisOperator,
    coherence,
    dct_operator,
    finite_difference_operator,
    load_operator,
    operator_bytes,
    overcomplete_dct_operator,
    read_operator,
)

__all__ = [
    "SHIPPED_OPERATORS",
    "AnalysisOperator",
    "coherence",
    "dct_operator",
    "finite_difference_operator",
    "load_operator",
    "operator_bytes",
    "overcomplete_dct_operator",
    "read_operator",
]
