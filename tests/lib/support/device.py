"""Where the fidelity tests compute; `python -m bench.gpu` runs them on a GPU."""

from __future__ import annotations

import os

DEVICE = os.environ.get("FIDELITY_DEVICE", "cpu")
