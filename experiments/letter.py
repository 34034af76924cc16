"""What the letter measured, and what goes beyond it: the trials of every figure and table.

- *figure3*, *figure4*: Q_MI and Q^AB/F over the patch size n at σ = 0 and 15, and over σ at n = 7.
- *figures12*: one scene at σ = 0 and 15, all methods, with magnified details. The figures show the
  data set's pictures and are not for committing.
- *truth*: PSNR and SSIM of MFI-WHU pairs and of simulated stacks of K frames; the Lytro triples
  (no truth: Q_MI and Q^AB/F). To bound the time, SR-KSVD without noise and `paper` with noise run
  on every third pair; on simulated stacks SR-KSVD runs for two frames only and `paper` at σ = 0 and
  15 only. Tables compare on the same pairs.
- *table1*: seconds a pair, as ratios to SR-KSVD. One process on one core runs one trial after the
  other; within each pair the methods take turns, and every other repeat in reverse, so that a
  machine that slows down slows all of them. The letter does not say which stride its methods ran
  with: both of SR-KSVD and both of ours are timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.pictures import LYTRO_PAIRS, LYTRO_TRIPLES, WHU_PAIRS
from experiments.statistics import Mean, Row, mean, scores_by_item
from experiments.trials import Trial

Items = tuple[int, ...]

#: The letter's comparison: its two rivals, its own method read in two ways, and our `fast`.
RIVALS = ("sf-dct", "sr-ksvd")
OURS = ("paper", "paper-dense", "fast")
LETTER_METHODS = RIVALS + OURS
_USUAL = ("average", "laplacian", "gff", "focus-measure", "tv+focus-measure")
_TIMED_METHODS = ("sf-dct", "sr-ksvd", "sr-ksvd-dense", "paper", "paper-dense", "fast")
#: The noise levels of figures 1 and 2, of the triples, of `paper-dense` and of table 1.
TWO_SIGMAS = (0, 15)
#: The letter's own seconds, on another machine, at σ = 0 and 15.
LETTER_SECONDS = {"sf-dct": (1.073, 2.179), "sr-ksvd": (4.342, 5.281), "paper": (4.567, 5.981)}


@dataclass(frozen=True)
class Plan:
    """What is computed on which scenes; the defaults are the full run."""

    data: Path | None
    results: Path
    workers: int = 1
    form: str = "full run"
    pairs: tuple[str, Items] = ("lytro", LYTRO_PAIRS)
    sizes: Items = (5, 6, 7, 8, 9)
    sigmas: Items = (0, 5, 10, 15, 20)
    timed: Items = (1, 5, 9, 13, 17)
    repeats: int = 1
    shown: int = 19
    triples: tuple[str, Items] = ("lytro_triple", LYTRO_TRIPLES)
    truth_pairs: tuple[str, Items] = ("mfi_whu", WHU_PAIRS)
    truth_pair_sigmas: Items = (0, 15, 25)
    stacks: tuple[str, Items] = ("stack", (3, 11, 19, 27, 35, 43, 51, 59))
    stack_frames: Items = (2, 3, 5, 10)
    stack_sigmas: Items = (0, 5, 15, 25)

    def quick(self) -> Plan:
        """Take a few pairs, and three points an axis."""
        return replace(
            self,
            form="quick run",
            pairs=("lytro", (1, 6, 11, 16)),
            sizes=(6, 7, 8),
            sigmas=(0, 5, 15),
            timed=(1, 11),
            triples=("lytro_triple", (1,)),
            truth_pairs=("mfi_whu", (1, 31, 61, 91)),
            truth_pair_sigmas=(0, 15),
            stacks=("stack", (3, 35)),
            stack_frames=(2, 3, 5),
            stack_sigmas=(0, 5, 25),
        )

    def simulated(self) -> Plan:
        """Put small scenes made of the package's pictures in the place of every collection."""
        return replace(
            self,
            data=None,
            form=f"{self.form} on simulated pictures",
            pairs=("sample-2", (1, 2)),
            timed=(1,),
            shown=2,
            triples=("sample-3", (3,)),
            truth_pairs=("sample-2", (3, 4)),
            stacks=("sample", (5, 6)),
            stack_frames=(2, 5),
        )


def figure3_trials(plan: Plan) -> list[Trial]:
    """The letter's methods for every n and σ; the dense reading with noise at n = 7 only."""
    dataset, items = plan.pairs
    return [
        Trial(dataset, item, method, sigma, n)
        for sigma in TWO_SIGMAS
        for n in plan.sizes
        for method in LETTER_METHODS
        for item in items
        if not (method == "paper-dense" and sigma > 0 and n != 7)
    ]


def figure4_trials(plan: Plan) -> list[Trial]:
    """The letter's methods at every σ; the dense reading, slow with noise, at 0 and 15 only."""
    dataset, items = plan.pairs
    return [
        Trial(dataset, item, method, sigma, 7)
        for sigma in plan.sigmas
        for method in LETTER_METHODS
        for item in items
        if not (method == "paper-dense" and sigma not in TWO_SIGMAS)
    ]


def figures12_trials(plan: Plan) -> list[Trial]:
    """The scene shown, by every method, the pictures kept."""
    return [
        Trial(plan.pairs[0], plan.shown, method, sigma, 7, keep=True)
        for sigma in TWO_SIGMAS
        for method in ("sf-dct", "sr-ksvd", "paper", "fast")
    ]


def truth_trials(plan: Plan) -> list[Trial]:
    """Pairs with truth, triples and simulated stacks."""
    pairs, items = plan.truth_pairs
    found = [
        Trial(pairs, item, method, sigma, 7)
        for sigma in plan.truth_pair_sigmas
        for method in ("fast", "paper", "sf-dct", "sr-ksvd", *_USUAL)
        for item in (items[::3] if method == ("paper" if sigma else "sr-ksvd") else items)
    ]
    triples, items = plan.triples
    found += [
        Trial(triples, item, method, sigma, 7)
        for sigma in TWO_SIGMAS
        for method in (*LETTER_METHODS, *_USUAL)
        for item in items
    ]
    kind, items = plan.stacks
    found += [
        Trial(f"{kind}-{frames}", item, method, sigma, 7)
        for frames in plan.stack_frames
        for sigma in plan.stack_sigmas
        for method in ("fast", "paper", "sr-ksvd", *_USUAL)
        for item in items
        if not (method == "sr-ksvd" and frames > 2)
        if not (method == "paper" and sigma not in TWO_SIGMAS)
    ]
    # Without noise the denoiser in front does nothing: that is the method without it.
    return [trial for trial in found if not ("+" in trial.method and trial.sigma == 0)]


def table1_trials(plan: Plan) -> list[Trial]:
    """Every method on every timed pair, taking turns."""
    return [
        Trial(plan.pairs[0], item, method, sigma, 7, repeat=repeat + 1)
        for repeat in range(plan.repeats)
        for item in plan.timed
        for sigma in TWO_SIGMAS
        for method in _TIMED_METHODS[:: -1 if repeat % 2 else 1]
    ]


#: In this order: what matters most and costs least comes first, the timings have the machine alone.
STEPS: dict[str, Callable[[Plan], list[Trial]]] = {
    "figure4": figure4_trials,
    "figure3": figure3_trials,
    "figures12": figures12_trials,
    "truth": truth_trials,
    "table1": table1_trials,
}


def read_times(rows: list[Row]) -> list[dict[str, Any]]:
    """Return, by method and σ, mean CPU and wall seconds and their ratios to either SR-KSVD."""
    table = []
    for method in _TIMED_METHODS:
        for sigma in TWO_SIGMAS:
            own = {clock: _by_pair(rows, clock, method, sigma) for clock in ("cpu", "wall")}
            ratios: dict[str, Mean] = {}
            for rival in ("sr-ksvd", "sr-ksvd-dense"):
                other = _by_pair(rows, "cpu", rival, sigma)
                ratios[rival] = mean(own["cpu"][p] / other[p] for p in own["cpu"] if other.get(p))
            times = {clock: mean(pairs.values()) for clock, pairs in own.items()}
            table.append({"method": method, "sigma": sigma, **times, "ratios": ratios})
    return table


def _by_pair(rows: list[Row], clock: str, method: str, sigma: float) -> dict[Any, float]:
    """Seconds by pair, each the mean of its repeats: those say nothing about other pairs."""
    repeats: dict[Any, list[float]] = {}
    for key, seconds in scores_by_item(rows, clock, method=method, sigma=sigma).items():
        repeats.setdefault(key[:2], []).append(seconds)
    return {pair: mean(seconds).mean for pair, seconds in repeats.items()}
