"""Where the fidelity tests compute: `FIDELITY_DEVICE` is a device of torch, or `pretended` for a GPU that isn't there.

`python -m bench.gpu` runs them on a GPU.
"""

from __future__ import annotations

import os

_ASKED = os.environ.get("FIDELITY_DEVICE", "cpu")
PRETENDED = _ASKED == "pretended"
DEVICE = "cuda:0" if PRETENDED else _ASKED
