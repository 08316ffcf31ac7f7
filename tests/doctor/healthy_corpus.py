"""All healthy programs, on which the doctor must find nothing."""

from __future__ import annotations

import corpus_equinox
import corpus_flax
import corpus_training
from healthy_program import CORPUS, Healthy, filled

__all__ = ["CORPUS", "Healthy", "corpus_equinox", "corpus_flax", "corpus_training", "filled"]
