"""How large what a user gives may be. Whatever lies within is answered in seconds, whatever lies beyond is refused with a sentence.

A product of all sizes of a step then stays far inside what a float holds (10^308): seconds, shares and rates need no guard.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

from pydantic import Field

# elements along one dimension, tokens, sequences, micro-batches
LARGEST_SIZE = 10**15
# ranks along one axis of the mesh
MOST_RANKS = 10**6
# of all layers together, as the gradient buckets are cut expert by expert
MOST_EXPERTS = 500_000
# layers are listed one by one (Hugging Face's layer_types, gradient buckets); the deepest networks trained have some hundred
MOST_LAYERS = 10_000
# pp * vpp: equal stages are evaluated once, but --json has a row for each; the longest pipelines in use have some dozens
MOST_STAGES = 4096
# each is derived by itself
MOST_LAYER_KINDS = 32
MOST_TIERS = 12
# ranks of adapters by names of linear maps
MOST_PATTERNS = 256
# a number of a system, in base units, and one over it
LARGEST_QUANTITY = Fraction(10**30)

Size = Annotated[int, Field(gt=0, le=LARGEST_SIZE)]
AnySize = Annotated[int, Field(ge=0, le=LARGEST_SIZE)]
Degree = Annotated[int, Field(gt=0, le=MOST_RANKS)]
Stages = Annotated[int, Field(gt=0, le=MOST_STAGES)]
Layers = Annotated[int, Field(gt=0, le=MOST_LAYERS)]
AnyLayers = Annotated[int, Field(ge=0, le=MOST_LAYERS)]
Experts = Annotated[int, Field(gt=0, le=MOST_EXPERTS)]
