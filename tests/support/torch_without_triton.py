"""Importing this makes torch look for its compiler `triton` without tests/ on the path.

There the folder of the server's tests would pass as the package of the same name.
"""

from __future__ import annotations

import sys
from pathlib import Path

from torch.utils._triton import has_triton_package

_path, sys.path = sys.path, [place for place in sys.path if Path(place) != Path(__file__).parents[1]]
has_triton_package()
sys.path = _path
