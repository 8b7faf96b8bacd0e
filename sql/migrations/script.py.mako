"""${message}"""

from alembic import context, op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    for main_name in context.config.attributes["tables"]:
        ${upgrades if upgrades else "pass"}
