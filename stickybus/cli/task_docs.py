"""The docs of a work queue by hand: `docs`, `doc-put`, `doc-rm` and `ns` of `stickybus tasks`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from stickybus.cli.exit_codes import BAD_DATA
from stickybus.cli.option_groups import grouped
from stickybus.cli.output import remark, write_json, write_table
from stickybus.cli.target import Json
from stickybus.cli.work import (
    AnyJson,
    Opening,
    Prefixes,
    WithoutValues,
    facts,
    opening,
    row,
    value_of,
)
from work_queue.document import Doc
from work_queue.modification import InsertDoc

COLUMNS = {
    "id": "ID",
    "version": "VERSION",
    "key": "KEY",
    "secondary_key": "SECONDARY KEY",
    "claimant": "CLAIMANT",
    "at": "AT (UTC)",
    "value": "CONTENT",
}
STATS = {"namespace": "NAMESPACE", "docs": "DOCS", "claimed": "CLAIMED"}

Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="The namespace.", show_default=False)
]


@grouped(opened=opening)
def docs(
    *,
    namespace: Namespace,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", "-i", help="Only this id; may be repeated.", show_default=False),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Only of this key.", show_default=False)
    ] = None,
    first_key: Annotated[
        str, typer.Option("--first-key", "-k", help="From this key on.", show_default=False)
    ] = "",
    end_key: Annotated[
        str, typer.Option("--end-key", "-K", help="Before this key.", show_default=False)
    ] = "",
    limit: Annotated[int, typer.Option("--limit", "-l", help="At most this number; 0: all.")] = 100,
    omit_values: WithoutValues = False,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """List docs of a namespace: by ids, of one key, or of a range of keys in the order of bytes.

    Examples:
      stickybus tasks docs -n shards

      stickybus tasks docs -n shards -k shard/ -K shard0 --json
    """
    with opened() as work:
        found = work.docs(
            namespace,
            ids=ids,
            key=key,
            first_key=first_key,
            end_key=end_key,
            limit=limit,
            with_contents=not omit_values,
        )
    _write(found, as_json=as_json, omit_values=omit_values)


@grouped(opened=opening)
def doc_put(
    *,
    namespace: Namespace,
    key: Annotated[
        str, typer.Option("--key", "-k", help="The key of its set.", show_default=False)
    ],
    secondary_key: Annotated[
        str,
        typer.Option("--secondary-key", "-K", help="Its key in the set.", show_default=False),
    ] = "",
    value: Annotated[
        str, typer.Option("--value", "-v", help="Its content, as JSON.", show_default=False)
    ],
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Write a doc at its place, whether one is there or not, and show it.

    Examples:
      stickybus tasks doc-put -n shards -k 7 -v '{"owner": "ann"}'
    """
    content = value_of(value)
    with opened() as work:
        there = [one for one in work.docs(namespace, key=key) if one.secondary_key == secondary_key]
        if there:
            found = work.modify(there[0].change(content)).changed_docs[0]
        else:
            new = InsertDoc(
                namespace=namespace, key=key, secondary_key=secondary_key, content=content
            )
            found = work.modify(new).inserted_docs[0]
    _write([found], as_json=as_json)


@grouped(opened=opening)
def doc_rm(
    *,
    namespace: Namespace,
    doc_id: Annotated[str, typer.Option("--id", "-i", help="The doc's id.", show_default=False)],
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Delete a doc at its newest version, and show it as it was.

    Examples:
      stickybus tasks doc-rm -n shards -i 01a2
    """
    with opened() as work:
        found = work.docs(namespace, ids=[doc_id])
        if found:
            work.modify(found[0].delete())
    if not found:
        remark(f"stickybus: there is no doc {doc_id} in {namespace}")
        raise typer.Exit(BAD_DATA)
    _write(found, as_json=as_json)


@grouped(opened=opening)
def ns(
    *,
    prefix: Prefixes = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace", "-n", help="This namespace; may be repeated.", show_default=False
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-l", help="At most this number of namespaces; 0: all.")
    ] = 0,
    as_json: AnyJson = False,
    opened: Opening,
) -> None:
    """Count the docs of namespaces.

    Examples:
      stickybus tasks ns --prefix shards/
    """
    with opened() as work:
        found = [
            asdict(one)
            for one in work.namespace_stats(*namespace or (), prefixes=prefix or (), limit=limit)
        ]
    if as_json:
        write_json(found)
    else:
        write_table("Namespaces", STATS, found, empty="No namespace has docs.")


def _write(found: list[Doc], *, as_json: bool, omit_values: bool = False) -> None:
    if as_json:
        write_json([facts(one) for one in found])
        return
    columns = {key: head for key, head in COLUMNS.items() if key != "value" or not omit_values}
    write_table("Docs", columns, [row(one) for one in found], empty="No doc.")
