"""GitHub Apps: a signed statement (JWT, RS256) is exchanged for an installation token."""
import base64
import json
import secrets
import time

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding

from .model import Refused, Token
from .render import when
from .web import Response

JWT_LIFE_MAX = 600
ISSUED_AHEAD_MAX = 0  # GitHub allows for no drift of the caller's clock


class App:
    def __init__(self, app_id, installation, public_key, permissions=None, repos="*", token_seconds=3600):
        self.id, self.installation = str(app_id), int(installation)
        self.key = serialization.load_pem_public_key(public_key.encode())
        self.permissions, self.repos, self.token_seconds = permissions, repos, token_seconds
        self.statements = []  # every one that was accepted

    def show(self):
        return {"app_id": self.id, "installation_id": self.installation, "statements": self.statements}


def _decode(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def check_jwt(app, text, now):
    """The payload, or a sentence on what is wrong with it, in GitHub's words where they are known."""
    try:
        head, body, signature = text.split(".")
        app.key.verify(_decode(signature), ("%s.%s" % (head, body)).encode(), padding.PKCS1v15(), hashes.SHA256())
        header, payload = json.loads(_decode(head)), json.loads(_decode(body))
    except (ValueError, InvalidSignature):
        raise Refused("bad-jwt", "A JSON web token could not be decoded") from None
    if header.get("alg") != "RS256" or str(payload.get("iss")) != app.id:
        raise Refused("bad-jwt", "'Issuer' claim ('iss') must be an Integer or client ID of the App")
    if not isinstance(payload.get("iat"), int) or payload["iat"] > now + ISSUED_AHEAD_MAX:
        raise Refused("bad-jwt", "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued")
    if not isinstance(payload.get("exp"), int) or payload["exp"] <= now:
        raise Refused("bad-jwt", "'Expiration time' claim ('exp') must be a numeric value representing the future time at "
                                 "which the assertion expires")
    if payload["exp"] > now + JWT_LIFE_MAX:
        raise Refused("bad-jwt", "'Expiration time' claim ('exp') is too far in the future")
    return payload


def installation_token(call):
    world, wanted = call.world, int(call.match["id"])
    now = world.wall()
    apps = [a for a in world.apps.values() if a.installation == wanted]
    if not apps:
        return Response.error(401, "A JSON web token could not be decoded") if not world.apps else Response.error(404, "Not Found")
    app = apps[0]
    try:
        app.statements.append(check_jwt(app, call.request.bearer() or "", now))
    except Refused as e:
        return Response.error(401, str(e))
    # As long as they have become, with dots, dashes and underscores.
    text = "ghs_" + ".".join(secrets.token_urlsafe(128) for _ in range(3))
    token = Token(text, login="the-app[bot]", repos=app.repos, permissions=app.permissions)
    token.expires = now + app.token_seconds
    world.tokens[token.sha256] = token
    return Response.json({"token": text, "expires_at": when(token.expires), "repository_selection": "all",
                          "permissions": {k: v for k, v in (app.permissions or {"administration": "write"}).items()}}, 201)
