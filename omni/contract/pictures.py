"""The formats of images that are opened, for the first look of the front door and for decoding alike.

All that Pillow decodes by itself from one file, of which the first bytes tell the format. Left out is what

- starts another program or asks the operating system: EPS, WMF and EMF;
- is a box for other files, opened in their turn: FPX, MIC, ICNS, IPTC, PDF;
- can unpack without a bound: FITS;
- is known by its name alone: SPIDER, PCD, Palm, IMT, XV thumbnails;
- isn't decoded at all: BUFR, GRIB, HDF5, MPEG;
- Pillow is about to drop: IM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PICTURES: Final[Mapping[str, str]] = {
    "png": "PNG", "jpeg": "JPEG", "webp": "WEBP", "gif": "GIF", "bmp": "BMP", "tiff": "TIFF", "avif": "AVIF",
    "jpeg2000": "JPEG2000", "ico": "ICO", "cur": "CUR", "ppm": "PPM", "psd": "PSD", "qoi": "QOI", "dds": "DDS",
    "pcx": "PCX", "dcx": "DCX", "sgi": "SGI", "sun": "SUN", "xbm": "XBM", "xpm": "XPM", "fli": "FLI", "msp": "MSP",
    "blp": "BLP", "ftex": "FTEX", "gbr": "GBR", "pixar": "PIXAR", "mcidas": "MCIDAS", "tga": "TGA",
}  # fmt: skip
"""By our name, Pillow's. The last has no mark, so it is tried last."""


def icon_pixels(data: bytes) -> int:
    """Pixels of the largest picture inside an ICO file, 0 for any other file.

    By that picture's own header, which the file's may belie; Pillow decodes it as soon as the file is opened. The
    format is a directory of 16 bytes an entry, with an offset at its end to a PNG or a BMP without its first 14 bytes.
    """
    most = 0
    count = int.from_bytes(data[4:6], "little") if data.startswith(b"\0\0\1\0") else 0
    for at in range(6, 6 + 16 * count, 16):
        start = int.from_bytes(data[at + 12 : at + 16], "little")
        inner = data[start : start + 24]
        if inner.startswith(b"\x89PNG"):
            width, height = int.from_bytes(inner[16:20], "big"), int.from_bytes(inner[20:24], "big")
        else:
            width = int.from_bytes(inner[4:8], "little", signed=True)
            height = int.from_bytes(inner[8:12], "little", signed=True)
        most = max(most, abs(width * height))
    return most
