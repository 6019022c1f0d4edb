"""Which models can be asked for, in the shape of the OpenAI API."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from frontend.errors import RESPONSES
from omni.contract.errors import UnknownModel

router = APIRouter(prefix="/v1/models", tags=["models"])


def _model(name: str, created: float) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": int(created), "owned_by": "omni-server"}


@router.get("", summary="All models", responses={401: RESPONSES[401]})
async def models(request: Request) -> JSONResponse:
    state = request.app.state
    return JSONResponse({"object": "list", "data": [_model(name, state.created) for name in state.models]})


_NAME = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}


# A parameter of the function would make FastAPI document status 422, which nothing here answers.
@router.get(
    "/{model:path}",
    summary="One model",
    responses={code: RESPONSES[code] for code in (401, 404)},
    openapi_extra={"parameters": [_NAME]},
)
async def model(request: Request) -> JSONResponse:
    state = request.app.state
    name = request.path_params["model"]
    if name not in state.models:
        raise UnknownModel("There is no such model; /v1/models lists those that there are.", param="model")
    return JSONResponse(_model(name, state.created))
