"""Request and Response as the handlers see them; the HTTP side is in server.py."""
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

DOCS = "https://docs.github.com/rest"


@dataclass
class Request:
    method: str
    target: str
    headers: dict  # lower-case names
    body: bytes = b""
    remote: str = ""
    tls: bool = False
    connection: Any = None
    path: str = ""  # decoded, without /api/v3
    raw_path: str = ""
    query: dict = field(default_factory=dict)
    ghes: bool = False

    def __post_init__(self):
        parts = urlsplit(self.target)
        self.raw_path = parts.path
        path = parts.path
        if path == "/api/v3" or path.startswith("/api/v3/"):
            self.ghes, path = True, path[len("/api/v3"):] or "/"
        self.parts = [unquote(p) for p in path.split("/")[1:]]
        self.path = path
        self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.query_text = parts.query

    def bearer(self):
        """The token of `Authorization: Bearer X` or `token X`; None without the header, "" when it is something else."""
        value = self.headers.get("authorization")
        if value is None:
            return None
        scheme, _, rest = value.partition(" ")
        return rest.strip() if scheme.lower() in ("bearer", "token") else ""


@dataclass
class Response:
    status: int = 200
    body: bytes = b""
    headers: dict = field(default_factory=dict)

    @staticmethod
    def json(value, status=200, headers=None):
        body = json.dumps(value).encode()
        return Response(status, body, {"Content-Type": "application/json; charset=utf-8", **(headers or {})})

    @staticmethod
    def text(value, status=200, headers=None):
        data = value if isinstance(value, bytes) else value.encode()
        return Response(status, data, {"Content-Type": "text/plain; charset=utf-8", **(headers or {})})

    @staticmethod
    def error(status, message, headers=None, errors=None, doc=DOCS):
        body = {"message": message, "documentation_url": doc, "status": str(status)}
        if errors:
            body["errors"] = errors
        return Response.json(body, status, headers)
