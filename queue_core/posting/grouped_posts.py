"""Postings that are members of groups."""

from __future__ import annotations

from collections.abc import Sequence

from queue_core.links.groups import GROUP_MARK
from queue_core.model.posting import Posting
from queue_core.model.refusal import refused
from queue_core.posting.draft import Draft
from queue_core.posting.linked_post import LinkedPost
from queue_core.storage.arguments import storable_integer
from queue_core.storage.groups import StoredGroups, sealed
from sql.search_keys import with_marks


def check_groups(queue_name: str, postings: Sequence[Posting]) -> None:
    """Check the options of a post that are about groups. Raises InvalidPostError."""
    for posting in postings:
        if posting.group is None:
            continue
        storable_integer(posting.group, "group", least=1)
        if posting.key is not None and posting.on_conflict not in {"return", "raise"}:
            # These write into an entry that is there, and may be another group's member.
            raise refused(
                queue_name, "on_conflict", posting.on_conflict, "return or raise, with a group"
            )


class GroupedPosts:
    """The groups of one post, in one transaction: `before` the insertion, and after.

    A caller's transaction may not see the newest groups.
    """

    def __init__(self, post: LinkedPost, drafts: Sequence[Draft]) -> None:
        self._post = post
        self._groups = StoredGroups(post.store, post.queue_name)
        self._members = dict[int, list[Draft]]()
        for draft in drafts:
            if draft.posting.group is not None:
                self._members.setdefault(draft.posting.group, []).append(draft)

    def before(self) -> None:
        """Mark the rows. Raises GroupNotFoundError or GroupSealedError."""
        if not self._members:
            return
        for row in self._groups.rows(
            self._post.connection, list(self._members), lent=self._post.lent
        ):
            if row.sealed_date is not None:
                raise sealed(self._post.queue_name, row.group_id)
        for group_id, drafts in self._members.items():
            for draft in drafts:
                headers = with_marks(draft.row["headers"], {GROUP_MARK: str(group_id)})
                draft.row = {**draft.row, "headers": headers}

    def after(self) -> None:
        """Count the inserted members, and keep the groups locked until the transaction ends.

        Raises GroupSealedError or GroupLockedError.
        """
        add = self._post.store.groups.statements.add
        for group_id in sorted(self._members):
            with self._groups.waiting(self._post.connection, group_id):
                added = add(self._post.connection, group_id, len(self._members[group_id]))
            if not added:
                raise sealed(self._post.queue_name, group_id)
