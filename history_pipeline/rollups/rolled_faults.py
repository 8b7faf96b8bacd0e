"""Completeness by a roll-up and the live entries, as `completeness` judges it by all rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute

from history_pipeline.audits.figures import Fault
from history_pipeline.rollups.id_ranges import IdRanges, Ids


class KnownIds(NamedTuple):
    """What is known of the ids of one main table."""

    unlinked: IdRanges
    """Rows that are chains of their own and have ended."""
    linked: pa.Table
    """The other rows that have ended, of `rollup.CHAINS`."""
    live: pa.Table
    """Live entries: record_id, chain_id."""

    def ranges(self) -> IdRanges:
        """All ids that are there."""
        others = [one["record_id"].to_numpy() for one in (self.linked, self.live)]
        return IdRanges.union([self.unlinked, *map(IdRanges.of, others)])


def chain_faults(known: KnownIds) -> Iterator[tuple[int, Fault]]:
    """Chains that have ended twice, or never, or are still live, by their first ids."""
    linked, live = known.linked, known.live
    live_chains = live["chain_id"].to_numpy()
    of_copies = live.filter(compute.not_equal(live["chain_id"], live["record_id"]))
    chains = np.unique(
        np.concatenate(
            [
                linked["chain_id"].to_numpy(),
                of_copies["chain_id"].to_numpy(),
                # An id that is there twice, wherever.
                known.ranges().repeated(),
            ]
        )
    )
    terminal = linked.filter(linked["terminal"])["chain_id"].to_numpy()
    ends = known.unlinked.rows_of(chains) + _count(terminal, chains)
    lives = _count(live_chains, chains)
    members = ends + lives + _count(linked["chain_id"].to_numpy(), chains)
    for fault, mask in (
        (Fault.ENDED_TWICE, ends > 1),
        (Fault.ENDED_AND_LIVE, (ends == 1) & (lives > 0)),
        (Fault.NO_END, (ends == 0) & (lives == 0) & (members > 0)),
    ):
        yield from ((chain, fault) for chain in chains[mask].tolist())


def _count(of: Ids, chains: Ids) -> Ids:
    """How often each of the chains stands in `of`."""
    found, counts = np.unique(of, return_counts=True)
    if not len(found):
        return np.zeros(len(chains), np.int64)
    place = np.minimum(np.searchsorted(found, chains), len(found) - 1)
    return np.where(found[place] == chains, counts[place], 0)
