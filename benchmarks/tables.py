"""Tables of results in Markdown, and their places in a document.

A place in a document is ``<!-- bench:NAME -->`` … ``<!-- /bench -->``; what stands between is
replaced. Every benchmark writes its results as JSON, and makes its tables from that.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "Tables",
    "add_output_options",
    "deliver",
    "fill_places",
    "markdown_table",
    "ratio",
    "write_results",
]

#: Markdown by the name of its place.
Tables = dict[str, str]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table; the first column holds words, the others figures."""
    lines = [" | ".join(head), "|".join(["---"] + ["---:"] * (len(head) - 1))]
    lines += [" | ".join(row) for row in rows]
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


def ratio(ours: float, theirs: float) -> str:
    """Write ours / theirs: below 1 we took less, above 1 more."""
    if theirs <= 0:
        return "–"
    value = ours / theirs
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def fill_places(text: str, tables: Mapping[str, str]) -> str:
    """Put tables in their places; one without a place is an error, a place without one stays."""
    for name, table in tables.items():
        place = re.compile(rf"(<!-- bench:{re.escape(name)} -->\n).*?(<!-- /bench -->)", re.DOTALL)
        if len(place.findall(text)) != 1:
            raise ValueError(f"expected one place <!-- bench:{name} --> … <!-- /bench -->")
        text = place.sub(lambda m, table=table: f"{m[1]}\n{table}\n\n{m[2]}", text)
    return text


def add_output_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Add what all benchmarks have: where results go, and making tables of earlier ones."""
    parser.add_argument("--output", type=Path, default=Path(f"results/{name}.json"))
    parser.add_argument(
        "--from", dest="earlier", type=Path, help="measure nothing, take these results"
    )
    parser.add_argument("--update-docs", type=Path, help="put the tables in this document")


def write_results(options: argparse.Namespace, results: dict[str, Any]) -> None:
    """Write results, all or those so far, where the options say."""
    output: Path = options.output
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def deliver(
    options: argparse.Namespace,
    measure: Callable[[], dict[str, Any]],
    tabulate: Callable[[dict[str, Any]], Tables],
) -> dict[str, Any]:
    """Measure or read results, write them, print their tables, and place these."""
    if options.earlier:
        results: dict[str, Any] = json.loads(options.earlier.read_text("utf-8"))
    else:
        results = measure()
        write_results(options, results)
    tables = tabulate(results)
    page = "\n\n".join(tables.values()) + "\n"
    print(page, end="", flush=True)
    if not options.earlier:
        options.output.with_suffix(".md").write_text(page, "utf-8")
    if options.update_docs:
        document: Path = options.update_docs
        document.write_text(fill_places(document.read_text("utf-8"), tables), "utf-8")
    return results
