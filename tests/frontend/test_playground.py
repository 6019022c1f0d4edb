from __future__ import annotations

import re

import pytest
from support.front import client, front

from frontend.playground import FILES

pytestmark = [pytest.mark.process, pytest.mark.anyio]


async def test_each_file_is_served_to_everybody_under_a_strict_policy() -> None:
    async with client(front(api_keys="secret")) as http:
        for path, file in FILES.items():
            answer = await http.get(path)
            assert (answer.status_code, answer.content) == (200, file.body), path
            assert answer.headers["content-type"] == file.media_type
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
        assert (await http.get("/playground/nothing.js")).status_code == 401


async def test_a_file_that_is_known_is_not_sent_again() -> None:
    async with client(front()) as http:
        first = await http.get("/")
        assert first.headers["cache-control"] == "no-cache"
        again = await http.get("/", headers={"if-none-match": f'"other", W/{first.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert (await http.get("/", headers={"if-none-match": '"other"'})).status_code == 200
        assert (await http.head("/")).headers["content-length"] == first.headers["content-length"]


async def test_it_can_be_turned_off() -> None:
    async with client(front(disable_playground=True)) as http:
        for path in FILES:
            assert (await http.get(path)).status_code == 404, path


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    page = FILES["/"].body.decode()
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)", page)
    loaded = re.findall(r'(?:src|href)="([^"]*)"', page)
    own = {address for address in loaded if address.startswith("#")}
    assert own <= {f"#{id}" for id in re.findall(r'\sid="([^"]*)"', page)}
    assert {f"/{path}" for path in set(loaded) - own} <= set(FILES)
    for path, file in FILES.items():
        addresses = set(re.findall(r"https?://[^\s\"'`]+", file.body.decode()))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path


def test_every_module_that_is_imported_is_there() -> None:
    for path, file in FILES.items():
        for name in re.findall(r'from "\./([^"]+)"', file.body.decode()):
            assert f"/playground/{name}" in FILES, path
