"""Real files of many kinds and defects, through the whole server.

Pictures are out of Pillow's own tests, sounds out of mutagen's, FFmpeg's program makes films, and in `media` are some
by SoX, eSpeak NG, ImageMagick and another FFmpeg.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from support.archives import installed, source_of
from support.launched import Launched

pytestmark = pytest.mark.client

PROGRAM = "imageio-ffmpeg==0.8.1"

PICTURES: dict[str, str] = {
    "hopper.png": "image 128x128 #5a5060",
    "hopper.jpg": "image 128x128 #5a5060",
    "hopper.gif": "image 128x128 #5a5060",
    "hopper.webp": "image 128x128 #5a5060",
    "hopper.bmp": "image 128x128 #5a5060",
    "hopper.tif": "image 128x128 #5a5060",
    "avif/hopper.avif": "image 128x128 #5a5060",
    "hopper_gray.jpg": "image 128x128 #555555",
    "hopper_lzw.tif": "image 128x128 #5a5060",
    "hopper_g4.tif": "image 128x128 #636363",
    "hopper_bigtiff.tif": "image 128x128 #5a5060",
    "hopper_rle8.bmp": "image 128x128 #5a5060",
    "hopper_orientation_6.jpg": "image 128x128 #5a5060",
    "hopper_orientation_8.webp": "image 128x128 #5a5060",
    "hopper_idat_after_image_end.png": "image 128x128 #5a5060",
    "pil_sample_cmyk.jpg": "image 100x100 #1f0507",
    "16bit.MM.deflate.tif": "image 64x64 #020202",
    "g4_orientation_5.tif": "image 590x88 #e2e2e2",
    "multipage.tiff": "image 10x10 #008000",
    "iss634.gif": "image 245x245 #87895a",
    "iss634.webp": "image 245x245 #87895a",
    "p_trns_single.png": "image 64x64 #80b0a3",
    "junk_jpeg_header.jpg": "image 1024x768 #757475",
    "invalid-exif.jpg": "image 200x200 #5c5c5c",
    "decompression_bomb_extents.gif": "image 100x100 #ff0000",
    "decompression_bomb.gif": "too_large",
    "truncated_jpeg.jpg": "invalid_media",
    "truncated_image.png": "invalid_media",
    "broken.png": "invalid_media",
    "broken_data_stream.png": "invalid_media",
    "png_decompression_dos.png": "invalid_media",
    "oom-225817ca0f8c663be7ab4b9e717b02c661e66834.tif": "invalid_media",
    "hopper_unknown_pixel_mode.tif": "invalid_media",
    "hopper.psd": "image 128x128 #5a5060",
    "pillow.ico": "image 256x256 #d5c6c2",
    "deerstalker.cur": "image 32x32 #d5d5d6",
    "test-card-lossy-tiled.jp2": "image 640x480 #632d63",
    "9bit.j2k": "image 128x128 #606060",
    "hopper.ppm": "image 128x128 #5a5060",
    "hopper_1bit_plain.pbm": "image 128x128 #545454",
    "hopper_16bit.pgm": "image 128x128 #545454",
    "hopper.pfm": "image 128x128 #555555",
    "rgb32rle_top_right.tga": "image 199x199 #565544",
    "hopper.qoi": "image 128x128 #5a5060",
    "bc7-argb-8bpp_MipMaps-1.dds": "image 256x256 #889290",
    "pil184.pcx": "image 447x144 #dddddd",
    "hopper.dcx": "image 128x128 #5a5060",
    "tv.rgb": "image 640x480 #1d1916",
    "hopper.ras": "image 128x128 #5a5060",
    "hopper.xbm": "image 128x128 #9c9c9c",
    "hopper.xpm": "image 128x128 #5b5160",
    "hopper.fli": "image 128x128 #5a5060",
    "hopper.msp": "image 128x128 #545454",
    "blp/blp2_dxt1.blp": "image 256x256 #325860",
    "ftex_dxt1.ftc": "image 128x128 #b3b3b3",
    "gbr.gbr": "image 64x64 #d2d2d2",
    "hopper.pxr": "image 128x128 #5a5060",
    "cmx3g8_wv_1998.260_0745_mcidas.ara": "image 1800x400 #1c1c1c",
    "fujifilm.mpo": "image 3648x2736 #6d6f6c",
    "decompression_bomb.ico": "too_large",
    "timeout-ef9112a065e7183fa7faa2e18929b03e44ee16bf.blp": "too_large",
    "timeout-755a4d204f4208e3597ac3391edebee196462bd0.dds": "too_large",
    "sgi_overrun.bin": "invalid_media",
    "crash-7d4c83eb92150fb8f1653a697703ae06ae7c4998.j2k": "invalid_media",
    "fli_overrun.bin": "invalid_media",
    "hopper.im": "invalid_media",
    "hopper.fits": "invalid_media",
    "pillow.icns": "invalid_media",
    "hopper.mic": "invalid_media",
    "input_bw_one_band.fpx": "invalid_media",
    "hopper.spider": "invalid_media",
    "eps/1.eps": "invalid_media",
    "drawing.wmf": "invalid_media",
    "trailer_loop.pdf": "invalid_media",
    "avif/hopper.heif": "invalid_media",
}
"""By file, its description or the code of its error."""

SOUNDS: dict[str, str] = {
    "no-tags.mp3": "audio 0.06s -11.1dB",
    "xing.mp3": "audio 2.06s -99.9dB",
    "vbri.mp3": "audio 0.44s -27.2dB",
    "bad-xing.mp3": "audio 0.13s -41.5dB",
    "silence-44-s-mpeg25.mp3": "audio 3.68s -99.9dB",
    "silence-44-s.flac": "audio 3.68s -99.9dB",
    "variable-block.flac": "audio 0.91s -99.9dB",
    "example.opus": "audio 11.35s -20.7dB",
    "multipage-setup.ogg": "audio 4.13s -20.3dB",
    "multiplexed.spx": "audio 3.70s -99.9dB",
    "has-tags.m4a": "audio 3.69s -99.9dB",
    "alac.m4a": "audio 3.68s -99.9dB",
    "ep7.m4b": "audio 2.02s -21.3dB",
    "empty.aac": "audio 3.69s -99.9dB",
    "silence-2s-PCM-16000-08-notags.wav": "audio 2.00s -99.9dB",
    "silence-2s-PCM-44100-16-ID3v23.wav": "audio 2.00s -99.9dB",
    "11k-1ch-2s-silence.aif": "audio 2.00s -99.9dB",
    "8k-4ch-1s-silence.aif": "audio 1.00s -99.9dB",
    "emptyfile.mp3": "invalid_media",
    "too-short.mp3": "invalid_media",
    "ooming-header.flac": "invalid_media",
    "106-invalid-streaminfo.flac": "invalid_media",
    "52-too-short-block-size.flac": "invalid_media",
    "truncated-64bit.mp4": "invalid_media",
    "adif.aac": "invalid_media",
    "click.mpc": "invalid_media",
    "sample.mid": "invalid_media",
    "image.jpg": "invalid_media",
}

FILM = ("-f", "lavfi", "-i", "testsrc=size=96x64:rate=10:duration=2")
TONE = ("-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000:duration=2")
H264 = ("-c:v", "libx264", "-pix_fmt", "yuv420p")
SEEN = "video 96x64 4 frames 2.00s"

MADE: dict[str, tuple[tuple[str, ...], str]] = {
    "h264.mp4": ((*FILM, *H264), SEEN),
    "both.mp4": ((*FILM, *TONE, *H264, "-c:a", "aac"), SEEN),
    "fragments.mp4": ((*FILM, *H264, "-movflags", "frag_keyframe+empty_moov"), SEEN),
    "hevc.mov": ((*FILM, "-c:v", "libx265", "-pix_fmt", "yuv420p"), SEEN),
    "vp9.webm": ((*FILM, "-c:v", "libvpx-vp9"), SEEN),
    "old.avi": ((*FILM, "-c:v", "mpeg4"), SEEN),
    "odd.mkv": (("-f", "lavfi", "-i", "testsrc=size=97x65:rate=10:duration=2", "-c:v", "ffv1"),
                "video 97x65 4 frames 2.00s"),
    "variable.mkv": ((*FILM, "-vf", "select='not(mod(n,7))+lt(n,5)'", "-fps_mode", "vfr", *H264), "video 96x64"),
    "opus.webm": ((*TONE, "-c:a", "libopus"), "audio 2.00s -21.1dB"),
    "vorbis.ogg": ((*TONE, "-c:a", "libvorbis"), "audio 2.00s -21.0dB"),
    "mulaw.wav": ((*TONE, "-c:a", "pcm_mulaw", "-ar", "8000"), "audio 2.00s -21.0dB"),
    "deep.wav": ((*TONE, "-c:a", "pcm_s24le"), "audio 2.00s -21.1dB"),
    "surround.wav": ((*TONE, "-c:a", "pcm_f32le", "-ac", "6"), "audio 2.00s -36.6dB"),
}  # fmt: skip
"""By file, how FFmpeg makes it and its description."""


OTHERS: dict[str, tuple[str, str]] = {
    "sox-alaw.wav": ("audios", "audio 1.00s -12.0dB"),
    "sox-adpcm.wav": ("audios", "audio 1.00s -12.0dB"),
    "sox-gsm.wav": ("audios", "audio 1.00s -12.3dB"),
    "sox-deep.flac": ("audios", "audio 0.05s -12.0dB"),
    "sox-vorbis.ogg": ("audios", "audio 1.02s -12.1dB"),
    "sox.mp3": ("audios", "audio 1.07s -12.8dB"),
    "sox.aiff": ("audios", "audio 1.00s -12.0dB"),
    "sox.au": ("audios", "invalid_media"),
    "sox.w64": ("audios", "invalid_media"),
    "espeak.wav": ("audios", "audio 0.81s -21.1dB"),
    "ffmpeg.m4a": ("audios", "audio 1.02s -21.1dB"),
    "ffmpeg.aac": ("audios", "audio 1.09s -21.4dB"),
    "ffmpeg.opus": ("audios", "audio 1.00s -21.4dB"),
    "ffmpeg-audio.webm": ("audios", "audio 1.02s -21.1dB"),
    "ffmpeg.ac3": ("audios", "invalid_media"),
    "magick-16bit-alpha.png": ("images", "image 40x30 #800080"),
    "magick-palette.png": ("images", "image 40x30 #7f007f"),
    "magick-cmyk.tif": ("images", "image 40x30 #800080"),
    "magick-cmyk.jpg": ("images", "image 40x30 #7f017f"),
    "magick-progressive.jpg": ("images", "image 40x30 #80007f"),
    "magick-animation.gif": ("images", "image 40x30 #ff0000"),
    "magick-lossless.webp": ("images", "image 40x30 #800080"),
    "magick-1bit.pbm": ("images", "image 40x30 #000000"),
    "magick.bmp": ("images", "image 40x30 #800080"),
    "magick.dds": ("images", "image 40x30 #860079"),
    "magick.ico": ("images", "image 32x32 #800080"),
    "magick.jp2": ("images", "image 40x30 #770077"),
    "magick.pcx": ("images", "image 40x30 #800080"),
    "magick.psd": ("images", "image 40x30 #7f007f"),
    "magick.sgi": ("images", "image 40x30 #800080"),
    "magick.tga": ("images", "image 40x30 #800080"),
    "magick.xpm": ("images", "image 40x30 #7f007f"),
    "ffmpeg-both.mp4": ("videos", "video 96x64 2 frames 1.00s"),
    "ffmpeg-cut.mp4": ("videos", "invalid_media"),
    "ffmpeg-mjpeg.mov": ("videos", "video 96x64 2 frames 1.00s"),
    "ffmpeg-odd-variable.mkv": ("videos", "video 97x65 2 frames 0.97s"),
    "ffmpeg-theora.ogv": ("videos", "video 96x64 2 frames 1.00s"),
    "ffmpeg-turned.mov": ("videos", "video 64x96 2 frames 1.00s"),
    "ffmpeg-vp8.webm": ("videos", "video 96x64 2 frames 1.00s"),
    "ffmpeg.avi": ("videos", "video 96x64 2 frames 1.00s"),
    "ffmpeg.ts": ("videos", "invalid_media"),
    "ffmpeg.wmv": ("videos", "invalid_media"),
}
"""By file of the folder `media`, how it is sent, and its description or the code of its error."""


@pytest.fixture(scope="module")
def http(server: Launched) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=120) as http:
        yield http


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of `MADE`."""
    binaries = installed(PROGRAM.replace("==", "-"), "--no-deps", PROGRAM) / "imageio_ffmpeg" / "binaries"
    [program] = binaries.glob("ffmpeg-*")
    program.chmod(0o755)
    folder = tmp_path_factory.mktemp("made")
    for name, (how, _) in MADE.items():
        run = [program, "-nostdin", "-loglevel", "error", "-y", *how, folder / name]
        subprocess.run(run, check=True, capture_output=True, timeout=120)
    run = [program, "-nostdin", "-loglevel", "error", "-display_rotation", "90", "-i", folder / "h264.mp4"]
    subprocess.run([*run, "-c", "copy", folder / "upright.mp4"], check=True, capture_output=True, timeout=120)
    return folder


def described(http: httpx2.Client, kind: str, data: bytes, **fields: object) -> str:
    """What the server says of a file, or the code with which it refuses it."""
    body = {"messages": [{"role": "user", "content": ""}], kind: ["data:;base64," + base64.b64encode(data).decode()]}
    answer = http.post("/v1/chat/completions", json={**body, **fields})
    if answer.status_code == 200:
        return str(answer.json()["choices"][0]["message"]["content"]).removeprefix("Received ")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == f"{kind}.0"
    return str(answer.json()["error"]["code"])


def test_pictures(http: httpx2.Client) -> None:
    folder = source_of("pillow", "13.0.0") / "Tests" / "images"
    assert {name: described(http, "images", (folder / name).read_bytes()) for name in PICTURES} == PICTURES


def test_sounds(http: httpx2.Client) -> None:
    folder = source_of("mutagen", "1.47.0") / "tests" / "data"
    assert {name: described(http, "audios", (folder / name).read_bytes()) for name in SOUNDS} == SOUNDS


def test_files_of_other_programs(http: httpx2.Client) -> None:
    folder = Path(__file__).with_name("media")
    assert {path.name for path in folder.iterdir()} - {"README.md"} == OTHERS.keys()
    heard = {name: (kind, described(http, kind, (folder / name).read_bytes())) for name, (kind, _) in OTHERS.items()}
    assert heard == OTHERS


@pytest.mark.parametrize("name", MADE)
def test_files_of_ffmpeg(http: httpx2.Client, made: Path, name: str) -> None:
    expected = MADE[name][1]
    assert described(http, f"{expected.split()[0]}s", (made / name).read_bytes()).startswith(expected)


def test_films_that_are_turned_or_heard_or_cut(http: httpx2.Client, made: Path) -> None:
    assert described(http, "videos", (made / "upright.mp4").read_bytes()) == "video 64x96 4 frames 2.00s"
    both = (made / "both.mp4").read_bytes()
    assert described(http, "videos", both, use_audio_in_video=True) == f"{SEEN} with sound"
    assert described(http, "audios", both).startswith("audio 2.0")
    silent = (made / "h264.mp4").read_bytes()
    assert described(http, "audios", silent) == "invalid_media"
    assert described(http, "videos", (made / "vorbis.ogg").read_bytes()) == "invalid_media"
    assert described(http, "videos", silent[: len(silent) // 2]) == "invalid_media"


def test_a_film_is_sampled_as_asked(http: httpx2.Client, made: Path) -> None:
    film = (made / "h264.mp4").read_bytes()
    assert described(http, "videos", film, video_fps=5.0) == "video 96x64 10 frames 2.00s"
    assert described(http, "videos", film, video_fps=5.0, video_max_frames=6) == "video 96x64 6 frames 2.00s"
