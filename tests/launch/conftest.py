from __future__ import annotations

from pathlib import Path

import pytest

CONFIG = """
backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [ { name: "JOB" data_type: TYPE_STRING dims: [ 1 ] } ]
output [
  { name: "ERR" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "EOS" data_type: TYPE_BOOL dims: [ 1 ] }
]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""

MODEL = """
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb

BEHAVIOUR = Path(__file__).with_name("behaviour")


class TritonPythonModel:
    def initialize(self, args):
        if BEHAVIOUR.read_text() == "broken":
            raise RuntimeError("no weights here")

    def execute(self, requests):
        behaviour = BEHAVIOUR.read_text()
        for request in requests:
            sender = request.get_response_sender()
            if behaviour == "hang":
                self.kept = sender
                continue
            tensors = [pb.Tensor("EOS", np.array([True]))]
            if behaviour != "answer":
                error = ('{"code": "%s", "message": "no"}' % behaviour).encode()
                tensors.append(pb.Tensor("ERR", np.array([error], dtype=np.object_)))
            sender.send(pb.InferenceResponse(tensors), flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


class Models:
    """A model repository with one tiny model in the place of the text ensemble."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        version = folder / "omni_text" / "1"
        version.mkdir(parents=True)
        (folder / "omni_text" / "config.pbtxt").write_text(CONFIG)
        (version / "model.py").write_text(MODEL)
        self._behaviour = version / "behaviour"
        self.behave("answer")

    def behave(self, how: str) -> None:
        """answer, hang, broken (at start), or the code of an error to answer with."""
        self._behaviour.write_text(how)


@pytest.fixture
def models(tmp_path: Path) -> Models:
    return Models(tmp_path / "models")
