"""Callers of a service and their rights, as tests write them down."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.contract.service.http.running import NEW, Json

ALL = ["CLAIM", "DELETE", "CHANGE", "DEPEND", "INSERT", "READ"]


EVERYTHING = {"actions": ALL, "queue_prefixes": [""], "namespace_prefixes": [""]}


def digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def bearer(token: str, headers: dict[str, str] = NEW) -> dict[str, str]:
    return {**headers, "authorization": f"Bearer {token}"}


def written(path: Path, *rights: Json, **more: Any) -> Path:
    """A policy with a caller of these rights, whose token is "ann", and one who may do all."""
    ann = {"name": "ann", "token_sha256": [digest("ann")], "rights": rights, **more}
    root = {
        "name": "root",
        "token_sha256": [digest("older"), digest("root").upper()],
        "rights": [EVERYTHING],
        "claimant_prefixes": [""],
    }
    path.write_text(json.dumps({"callers": [ann, root]}))
    return path
