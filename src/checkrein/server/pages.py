"""The page and its files, as they lie in the package: no build, no cache that outlives a new version.

Every file is asked for again and answered with 304 while it is the same. The page itself asks for its files under an
address that names their version, such as `/ui/v-1f3a…/app.js`: those are kept by the browser, and a new version has new
addresses. One module is not a file: `/ui/wording.js` holds the words of `core.wording`, so that the page says what the
command line says. Under a prefix the addresses of the page's own files are put right, so the page itself need not know
where it is mounted: it finds the prefix in `<meta name="checkrein-base">`. Whoever opens an address that is none gets
the page too, which says so and leads back.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

from checkrein.core.wording import words_for_page
from checkrein.server.errors import not_found

UI: Final = Path(__file__).parent.parent / "ui"
# fmt: off
TYPES: Final = {
    ".css":  "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico":  "image/x-icon",
    ".js":   "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png":  "image/png",
    ".svg":  "image/svg+xml",
    ".woff2": "font/woff2",
}
# fmt: on
BASE: Final = '<meta name="checkrein-base" content="">'
WORDING: Final = "wording.js"
"""The module that is made of the words, and is asked for like a file."""
_VERSIONED: Final = re.compile(r"v-([0-9a-f]{16})/(.+)")
_YEAR: Final = 31_536_000
_PRIVATE: Final = frozenset({"jsconfig.json", "tsconfig.json"})


class _Kept(msgspec.Struct, frozen=True):
    kind: str
    stamp: tuple[int, int]
    body: bytes
    etag: str


class Files:
    """The files of one folder, read when they have changed, and the words."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._wording = _kept(WORDING, b"export default " + msgspec.json.encode(words_for_page()) + b";\n")
        self.version = ""
        """As it was when somebody looked last."""
        self._kept: dict[Path, _Kept] = {}  # by the file itself, which has any number of names: x/../app.js

    def read(self, name: str) -> _Kept | None:
        """A file of the folder, and of nothing else; None where there is none that may be served."""
        path = (self._folder / name).resolve()
        if path == self._folder / WORDING:
            return self._wording
        if not path.is_relative_to(self._folder) or path.suffix not in TYPES or path.name in _PRIVATE:
            return None
        try:
            stat = path.stat()
            kept, stamp = self._kept.get(path), (stat.st_mtime_ns, stat.st_size)
            if kept is None or kept.stamp != stamp:
                kept = self._kept[path] = _kept(path.name, path.read_bytes(), stamp)
        except (OSError, ValueError):
            return None
        return kept

    def look(self) -> str:
        """Look which version this is. It is the same as long as no file and no word has changed, come or gone."""
        stats = {str(path): path.lstat() for path in sorted(self._folder.rglob("*")) if path.suffix in TYPES}
        stamps = [(name, stat.st_mtime_ns, stat.st_size) for name, stat in stats.items()]
        self.version = hashlib.sha256(repr([self._wording.etag, *stamps]).encode()).hexdigest()[:16]
        return self.version


def _kept(name: str, body: bytes, stamp: tuple[int, int] = (0, 0)) -> _Kept:
    return _Kept(TYPES[Path(name).suffix], stamp, body, _etag(body))


def _etag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def routes(folder: Path = UI) -> APIRouter:
    router, files = APIRouter(include_in_schema=False), Files(folder)

    async def page(request: Request) -> Response:
        kept = files.read("index.html")
        if kept is None:
            return Response("The page is not part of this installation; the API is at /api.", media_type="text/plain")
        prefix = request.scope.get("root_path", "").rstrip("/")
        body = _under(prefix, files.look(), kept.body)
        return _answer(request, body, _etag(body), kept.kind)

    async def elsewhere(request: Request) -> Response:
        answer = await page(request)
        answer.status_code = 404 if answer.status_code == 200 else answer.status_code
        return answer

    router.add_api_route("/", page, methods=["GET", "HEAD"])
    router.add_api_route("/runs/{run}", page, methods=["GET", "HEAD"])
    router.add_api_route("/stops", page, methods=["GET", "HEAD"])

    @router.api_route("/ui/{name:path}", methods=["GET", "HEAD"])
    async def file(request: Request, name: str) -> Response:
        versioned = _VERSIONED.fullmatch(name)
        version, path = versioned.groups() if versioned else (None, name)
        kept = None if "\0" in path else files.read(path)
        if kept is None:
            raise not_found("not_found", f"There is no file {name} of the page.")
        # A page of an earlier version may still ask for its files: it gets those of today, and does not keep them.
        return _answer(request, kept.body, kept.etag, kept.kind, keep=version == files.version)

    router.add_api_route("/{path:path}", elsewhere, methods=["GET", "HEAD"], route_class_override=_Elsewhere)
    return router


class _Elsewhere(APIRoute):
    """Every other address, for people alone: a program is told in JSON that there is nothing, whatever it asks for."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        accept = dict(scope.get("headers", ())).get(b"accept", b"")
        path = scope.get("path", "").removeprefix(scope.get("root_path", "").rstrip("/"))
        is_for_people = b"text/html" in accept and not path.startswith(("/api", "/ui/"))
        return super().matches(scope) if is_for_people and scope["type"] == "http" else (Match.NONE, {})


def _under(prefix: str, version: str, body: bytes) -> bytes:
    safe = prefix.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    text = body.decode().replace('="/ui/', f'="{safe}/ui/v-{version}/')
    return text.replace(BASE, BASE.replace('content=""', f'content="{safe}"')).encode()


def _answer(request: Request, body: bytes, etag: str, kind: str, *, keep: bool = False) -> Response:
    cache = f"private, max-age={_YEAR}, immutable" if keep else "no-cache"
    headers = {"Cache-Control": cache, "X-Content-Type-Options": "nosniff", "ETag": etag}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=kind, headers=headers)
