from __future__ import annotations

import numpy as np
import pytest

from frontend.protocol.evs import SIDE, NearDuplicates, similarity

pytestmark = pytest.mark.pure


def grey(level: int) -> np.ndarray:
    return np.full((SIDE, SIDE, 3), level, np.uint8)


def test_the_measure() -> None:
    assert similarity(grey(9), grey(9)) == 1.0
    assert similarity(grey(0), grey(255)) == pytest.approx(0.0, abs=1e-6)
    assert similarity(grey(100), grey(151)) == pytest.approx(1 - (51 / 255) ** 2, abs=1e-6)


def test_it_is_the_published_formula() -> None:
    random = np.random.default_rng(1)
    for _ in range(20):
        a, b = random.integers(0, 256, (2, SIDE, SIDE, 3), np.uint8)
        published = 1.0 - float(np.mean((a.astype(np.float32) - b.astype(np.float32)) ** 2)) / 255.0**2
        assert similarity(a, b) == pytest.approx(published, abs=1e-6)


def test_one_for_equal_pictures_only() -> None:
    other = grey(9)
    other[0, 0, 0] += 1
    assert similarity(grey(9), other) < 1.0


@pytest.mark.parametrize(("step", "kept"), [(57, False), (58, True)])
def test_a_uniform_change_of_57_levels_is_a_duplicate(step: int, kept: bool) -> None:
    filter = NearDuplicates(0.95)
    assert filter.keep(grey(100))
    assert filter.keep(grey(100 + step)) is kept


@pytest.mark.parametrize(("share", "kept"), [(0.049, False), (0.051, True)])
def test_five_percent_of_all_pixels_may_flip(share: float, kept: bool) -> None:
    flipped = grey(0)
    flipped.reshape(-1, 3)[: round(share * SIDE * SIDE)] = 255
    filter = NearDuplicates(0.95)
    filter.keep(grey(0))
    assert filter.keep(flipped) is kept


def test_threshold_one_drops_equal_frames_only() -> None:
    filter = NearDuplicates(1.0)
    assert [filter.keep(grey(level)) for level in (1, 1, 2, 2, 1)] == [True, False, True, False, True]


def test_threshold_zero_keeps_the_first_alone() -> None:
    filter = NearDuplicates(0.0)
    assert [filter.keep(grey(level)) for level in (0, 255, 128)] == [True, False, False]


def test_slow_drift_adds_up() -> None:
    filter = NearDuplicates(0.95)
    kept = [level for level in range(0, 200, 20) if filter.keep(grey(level))]
    assert kept == [0, 60, 120, 180]
