"""Docs that are inserted and held."""

from __future__ import annotations

from work_queue.document import DocClaim, DocSet
from work_queue.modification import InsertDoc
from work_queue.work_queue import WorkQueue


def new(
    key: str = "k", secondary: str = "", content: object = None, **options: object
) -> InsertDoc:
    return InsertDoc(
        namespace="n",
        key=key,
        secondary_key=secondary,
        content=content,
        **options,  # type: ignore[arg-type]
    )


def held(work: WorkQueue, key: str = "k", claimant: str = "me", **options: float) -> DocSet:
    [docs] = work.claim_docs(DocClaim("n", key), claimant=claimant, **options)  # type: ignore[arg-type]
    return docs
