"""Claims of doc sets: all of those that are asked for, or none."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection

from sql.statements.work.docs import Pair, WorkDocs
from sql.statements.work.tasks import WorkTasks
from work_queue.document import DocClaim, DocSet
from work_queue.faults import DependencyError, Fault, FaultKind, refusal
from work_queue.refs import SetRef, TaskRef
from work_queue.requests import DocClaimRequest
from work_queue.storage.moment import Moment
from work_queue.storage.rows import doc_of, set_of

WHAT = "the claim of docs"
LOCK_SECONDS = 1.0
"""How long a claim for a task waits for what an open transaction has locked."""


def claim_docs(
    connection: Connection,
    tasks: WorkTasks,
    docs: WorkDocs,
    request: DocClaimRequest,
    moment: Moment,
) -> list[DocSet]:
    """Claim the sets, in the order of the request. Raises DependencyError.

    In a transaction of our own, which an error undoes: sets that nobody knew are added first.
    """
    faults = list[Fault]()
    arrival = moment.arrival(request.lease_seconds)
    if request.until is not None:
        end = _lease_end(connection, tasks, request.until, moment)
        if end is None:
            faults.append(Fault(FaultKind.DEPEND, request.until))
        else:
            arrival = end
    rows = _locked(connection, docs, request, moment)
    faults += [
        Fault(FaultKind.CLAIM, SetRef(claim.namespace, claim.key, rows[_key(claim)].version))
        for claim in request.claims
        if moment.held_by_another(rows[_key(claim)])
    ]
    if faults:
        raise refusal(WHAT, faults)
    docs.change_sets(
        connection,
        [
            {
                "of_namespace": namespace,
                "of_key": key,
                "new_version": row.version + 1,
                "new_arrival_date": arrival,
                "new_claimant": moment.claimant,
            }
            for (namespace, key), row in sorted(rows.items())
        ],
    )
    claimed = list[DocSet]()
    for claim in request.claims:
        held = SimpleNamespace(
            namespace=claim.namespace,
            doc_key=claim.key,
            version=rows[_key(claim)].version + 1,
            claimant=moment.claimant,
            arrival_date=arrival,
        )
        key = claim.key
        members = [] if claim.omit_docs else docs.by_keys(connection, claim.namespace, key=key)
        claimed.append(set_of(held, [doc_of(member) for member in members]))
    return claimed


def locked_elsewhere(
    connection: Connection, docs: WorkDocs, request: DocClaimRequest
) -> DependencyError:
    """The error of a claim that met a lock. Whose set it was is not known: it names them all."""
    there = docs.sets_present(connection, sorted(map(_key, request.claims)))
    versions = {(row.namespace, row.doc_key): row.version for row in there}
    return refusal(
        WHAT,
        [
            Fault(FaultKind.CLAIM, SetRef(*_key(claim), versions.get(_key(claim), 0)))
            for claim in request.claims
        ],
    )


def _lease_end(
    connection: Connection, tasks: WorkTasks, ref: TaskRef, moment: Moment
) -> datetime | None:
    """Until when a task is held; None if it is not there, or not held."""
    for row in tasks.lock(connection, [ref.id], shared=True):
        if row.version == ref.version and row.queue == ref.queue and row.arrival_date > moment.now:
            end: datetime = row.arrival_date
            return end
    return None


def _locked(
    connection: Connection, docs: WorkDocs, request: DocClaimRequest, moment: Moment
) -> dict[Pair, Any]:
    keys = sorted(map(_key, request.claims))
    there = {(row.namespace, row.doc_key) for row in docs.sets_present(connection, keys)}
    docs.add_sets(connection, [key for key in keys if key not in there], moment.now)
    return {(row.namespace, row.doc_key): row for row in docs.lock_sets(connection, keys)}


def _key(claim: DocClaim) -> Pair:
    return claim.namespace, claim.key
