"""Which part of every layer of the weigher a piece of its scores depends on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ANALYSIS_REACH", "DETAIL_REACH", "Reach", "Span", "Spans", "clip", "grow"]

Span = tuple[int, int]
Spans = tuple[Span, Span]

#: How many pixels beyond its own the weigher's filters look: those at half size, those at full.
ANALYSIS_REACH = 3
DETAIL_REACH = 2


def grow(span: Span, by: int = 1) -> Span:
    """Make a span longer at both ends."""
    return span[0] - by, span[1] + by


def clip(span: Span, size: int) -> Span:
    """Return what of a span lies within 0 … size − 1."""
    return max(span[0], 0), min(span[1], size)


@dataclass(frozen=True)
class Reach:
    """What is made along one axis of a picture: spans of rows (or columns), level by level.

    Attributes
    ----------
    scores
        The wanted ones, in pixels.
    picture
        Pixels of the picture they depend on.
    placed
        Pixels of the planes at full size that they are made of.
    guides
        The scores' pixels at half size.
    risen
        Those planes' pixels at half size.
    answers, totals, features
        By level: what comes out of its second convolution, of its first, and of the encoder.
    sizes
        By level: how long the whole axis is.
    """

    scores: Span
    picture: Span
    placed: Span
    guides: Span
    risen: Span
    answers: tuple[Span, ...]
    totals: tuple[Span, ...]
    features: tuple[Span, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, scores: Span, length: int, levels: int) -> Reach:
        """Follow a span of scores back; ``length`` is the picture's."""
        sizes = tuple((length + -length % 2**levels) >> level for level in range(1, levels + 1))
        placed = clip(grow(scores), 2 * sizes[0])
        risen = placed[0] // 2, -(-placed[1] // 2)
        answers, totals, features = [], [], []
        wanted = grow(risen)
        for size in sizes:
            answers.append(clip(wanted, size))
            totals.append(clip(grow(answers[-1]), size))
            features.append(clip(grow(totals[-1]), size))
            # Bilinear enlargement takes from the neighbour on the nearer side.
            wanted = (totals[-1][0] - 1) // 2, totals[-1][1] // 2 + 1
        for level in range(levels - 1, 0, -1):
            coarse = clip(grow(features[level]), sizes[level])
            fine = features[level - 1]
            features[level - 1] = min(fine[0], 2 * coarse[0]), max(fine[1], 2 * coarse[1])
        # The features of the first level reach farther than the planes at full size.
        first, last = 2 * features[0][0], 2 * features[0][1]
        return cls(
            scores,
            clip(grow((first, last), ANALYSIS_REACH), length),
            placed,
            (scores[0] // 2, -(-scores[1] // 2)),
            risen,
            tuple(answers),
            tuple(totals),
            tuple(features),
            sizes,
        )
