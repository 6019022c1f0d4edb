"""The least that one asks a server."""

from __future__ import annotations

import urllib.error
import urllib.request


def status_of(url: str) -> int:
    """The status of a GET; 0 when there is no answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
