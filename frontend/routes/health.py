"""Is the process alive, is the deployment ready, what is it, how is it doing."""

from __future__ import annotations

from time import monotonic

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from frontend.metrics import VERSION

router = APIRouter(tags=["health"])


@router.get("/live", summary="The process lives")
@router.head("/live", include_in_schema=False)
async def live() -> JSONResponse:
    return JSONResponse({"status": "live"})


@router.get("/health", summary="The deployment answers", responses={503: {"description": "Not now."}})
@router.get("/health/ready", summary="The deployment answers", responses={503: {"description": "Not now."}})
@router.head("/health", include_in_schema=False)
@router.head("/health/ready", include_in_schema=False)
async def health(request: Request) -> JSONResponse:
    """200 once a generation with text, image, sound and speech has passed; 503 before, after a failure, at the end."""
    state = request.app.state
    status = state.health.status
    body = {
        "status": status,
        "model": state.models[0],
        "profile": state.profile.name,
        "version": VERSION,
        "in_flight": state.admission.in_flight,
        "sessions": state.admission.sessions,
        "uptime_s": round(monotonic() - state.began, 1),
    }
    if state.health.error is not None:
        body["error"] = state.health.error
    return JSONResponse(body, 200 if status == "ready" else 503)


@router.get("/version", summary="What runs here")
async def version(request: Request) -> JSONResponse:
    state = request.app.state
    return JSONResponse({"version": VERSION, "model": state.models[0], "profile": state.profile.name})


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
async def metrics(request: Request) -> Response:
    body, content_type = request.app.state.metrics.expose(request.headers.get("accept", ""))
    return Response(body, headers={"content-type": content_type})
