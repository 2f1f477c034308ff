"""Forward FLOPs of a small model of every mixer, and what layers of some keep, beside transformers' module code (`mixer_cases.py`)."""

from __future__ import annotations

import mixer_cases
import pytest


@pytest.mark.long_after(6)
@pytest.mark.parametrize("mixer", mixer_cases.MIXERS)
def test_every_mixer_has_cases_of_both_and_equals_them(mixer: str) -> None:
    has = mixer_cases.MIXERS[mixer]
    kept = {name: (found, ours) for name, a, kind, found, ours in mixer_cases.kept_cases() if has(a, kind)}
    counted = {name: (found, ours) for name, a, found, ours in mixer_cases.flop_cases() if any(has(a, kind) for kind in a.layer_kinds.values())}
    assert kept and counted
    # those of other tables are held where these are: test_eager_bytes.py, test_families.py
    kept, counted = ({name: of[name] for name in of if name in own} for of, own in ((kept, mixer_cases.KEPT), (counted, mixer_cases.FLOPS)))
    assert {name: ours() for name, (_, ours) in kept.items()} == {name: found for name, (found, _) in kept.items()}
    assert {name: ours() for name, (_, ours) in counted.items()} == {name: found for name, (found, _) in counted.items()}
