"""How different the environments of a set are: the Vendi score of their programs, divided by their number.

Embedding: the set of all runs of three tokens that occur in a program (`n-grams`, binary). Tokens are names, whole numbers and single
other characters; white space separates and does not count. The kernel is the cosine of these binary vectors, |A∩B| / √(|A|·|B|): 1 for
equal texts, 0 when no three tokens in a row agree. Vendi score: exp(−Σ λ ln λ) over the eigenvalues λ of the kernel matrix divided by n
(Friedman and Dieng 2023); 1 when all n are the same, n when none shares anything. Over n that is 1/n to 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy

_TOKEN = re.compile(r"[^\W\d]\w*|\d+|[^\w\s]")
_GRAM = 3

Grams = frozenset[tuple[str, ...]]


def grams(program: str) -> Grams:
    """All runs of three tokens of a program; a shorter text is one run of what it has."""
    tokens = _TOKEN.findall(program)
    return frozenset(tuple(tokens[i : i + _GRAM]) for i in range(max(1, len(tokens) - _GRAM + 1)))


def kernel(programs: Sequence[str]) -> list[list[float]]:
    """Cosine similarity of every pair."""
    sets = [grams(program) for program in programs]
    return [[len(a & b) / math.sqrt(len(a) * len(b)) for b in sets] for a in sets]


def vendi_score(similarity: Sequence[Sequence[float]]) -> float:
    """Effective number of different items from a symmetric similarity matrix with unit diagonal; 0 for no items."""
    if not similarity:
        return 0.0
    eigenvalues = numpy.linalg.eigvalsh(numpy.asarray(similarity, dtype=numpy.float64) / len(similarity))
    return math.exp(-sum(float(v) * math.log(float(v)) for v in eigenvalues if v > 0))


def vendi_share(programs: Sequence[str]) -> float | None:
    """Vendi score over n; None for less than two programs."""
    return vendi_score(kernel(programs)) / len(programs) if len(programs) > 1 else None
