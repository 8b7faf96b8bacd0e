"""A worker for webhook deliveries: `stickybus worker webhooks:bus --app-dir examples`.

It counts deliveries per kind. A `push` fails at its first run, a `gollum` at every run.
"""

import atexit
import os
import time
from collections import Counter
from typing import Any

from stickybus import BusConfig, EntryContext, Mode, PersistentBus

KINDS = """
    branch_protection_rule check_run check_suite code_scanning_alert commit_comment create delete
    dependabot_alert deploy_key deployment deployment_review deployment_status discussion
    discussion_comment fork github_app_authorization gollum installation installation_repositories
    issue_comment issues label marketplace_purchase member membership merge_group meta milestone
    org_block organization package page_build ping project project_card project_column
    projects_v2_item public pull_request pull_request_review pull_request_review_comment
    pull_request_review_thread push registry_package release repository repository_dispatch
    repository_import repository_vulnerability_alert secret_scanning_alert security_advisory
    sponsorship star status team team_add watch workflow_dispatch workflow_job workflow_run
""".split()  # noqa: SIM905 -- sixty quoted names read worse

# POLLING: any worker may take any entry. Everything else comes from the environment,
# or is a default.
bus = PersistentBus(
    os.environ["STICKYBUS_URL"], BusConfig.from_environment(mode=Mode.POLLING, handler_threads=4)
)
counts = Counter[str]()


def handle(_delivery: dict[str, Any], context: EntryContext) -> None:
    """Take 100 ms, and fail where it is wanted."""
    time.sleep(0.1)
    if context.class_name == "push" and context.error_count == 0:
        raise ConnectionError("the build server did not answer")
    if context.class_name == "gollum":
        raise LookupError("there is no wiki here")
    counts[context.class_name] += 1


for kind in KINDS:
    bus.subscribe(kind, handle)
atexit.register(
    lambda: print(*(f"{count:5} {kind}" for kind, count in counts.most_common()), sep="\n")
)
