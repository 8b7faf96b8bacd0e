"""The tests' own servers: what they promise to tests and benchmarks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, create_engine, inspect, text

from devtools.programs import URL_VARIABLES, WITHOUT, is_done_without
from devtools.server import DatabaseServer, StopMode
from devtools.servers import database_servers
from tests.contract.harness import eventually

_WAITING_CHILD = (
    f"import os, sys; print(os.environ['{URL_VARIABLES['postgresql']}'], flush=True); "
    "sys.stdin.read()"
)
# A shell's background job ignores Ctrl-C, and so would all that it starts.
_OWNER = """
import signal, sys
from tests.contract.harness import eventually
from devtools.servers import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(["--", sys.executable, "-c", sys.argv[1]]))
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_servers_and_their_files_end_with_their_owner(end: signal.Signals) -> None:
    environment = {
        key: value for key, value in os.environ.items() if key not in URL_VARIABLES.values()
    }
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, _WAITING_CHILD],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert owner.stdout is not None
    assert owner.stdin is not None
    data = _data_folder(owner.stdout.readline().decode().strip())
    assert {path.name for path in data.iterdir()} == {
        name for name in URL_VARIABLES if not is_done_without(name)
    }
    if end == signal.SIGINT:
        os.killpg(owner.pid, end)
    else:
        owner.send_signal(end)
    owner.wait(90)  # three servers stop
    owner.stdin.close()
    # The last to hold the pipe are the command and the guard: its end says that both have finished.
    assert owner.stdout.read() == b""
    owner.stdout.close()
    assert not data.exists()
    # A process that was killed is listed until the kernel has taken it down.
    assert eventually(lambda: not _processes_below(data), "the servers' processes have gone")


_WITHOUT_MYSQL = """
import sys
from devtools import programs, servers
programs.PROGRAMS["mysql"] = (("no-such-mysqld",), "MySQL")
sys.exit(servers.main(["--", "echo", "ran"]))
"""


@pytest.mark.parametrize(
    ("ci", "output", "words"),
    [
        ("", "ran\n", f"{WITHOUT}\n"),
        ("true", "", "no-such-mysqld not found: install MySQL, or set "),
    ],
)
def test_without_a_mysql_server_a_line_says_so_and_in_ci_it_is_an_error(
    ci: str, output: str, words: str
) -> None:
    others = {URL_VARIABLES[name]: "given" for name in ("postgresql", "mariadb")}
    environment = {key: value for key, value in os.environ.items() if key != URL_VARIABLES["mysql"]}
    found = subprocess.run(
        [sys.executable, "-c", _WITHOUT_MYSQL],
        env=environment | others | {"CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode == 0, found.stdout) == (bool(output), output)
    assert found.stderr.startswith(words)


@pytest.mark.parametrize("mode", StopMode)
def test_committed_rows_survive_a_restart(own_server: DatabaseServer, mode: StopMode) -> None:
    engine = create_engine(own_server.url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE kept (id INTEGER)"))
        connection.execute(text("INSERT INTO kept VALUES (1)"))
    own_server.restart(mode)
    engine.dispose()
    with engine.begin() as connection:
        assert connection.execute(text("SELECT id FROM kept")).scalars().all() == [1]
        connection.execute(text("DROP TABLE kept"))
    engine.dispose()


def test_a_durable_server_says_so_itself() -> None:
    which = [name for name in URL_VARIABLES if not is_done_without(name)]
    with database_servers(durable=True, which=which) as servers:
        says = {name: servers.server(name).settings() for name in which}
    postgresql = says.pop("postgresql")
    assert (
        postgresql["fsync"],
        postgresql["synchronous_commit"],
        postgresql["full_page_writes"],
    ) == ("on",) * 3
    for innodb in says.values():
        assert (innodb["innodb_flush_log_at_trx_commit"], innodb["innodb_doublewrite"]) == (
            "1",
            "ON",
        )
        assert innodb.get("sync_binlog", "1") == "1"


def test_each_test_gets_the_migrated_schema_and_nothing_else(
    database_url: URL, engine: Engine
) -> None:
    with engine.connect() as connection:
        assert {"bus_events", "bus_events_history", "notifications"} <= set(
            inspect(connection).get_table_names()
        )
        assert connection.execute(text("SELECT count(*) FROM bus_events")).scalar_one() == 0


def test_an_empty_database_has_no_table(empty_database_url: URL) -> None:
    engine = create_engine(empty_database_url)
    assert inspect(engine).get_table_names() == []
    engine.dispose()


def _data_folder(postgresql_url: str) -> Path:
    engine = create_engine(postgresql_url)
    with engine.connect() as connection:
        folder = Path(connection.execute(text("SHOW data_directory")).scalar_one())
    engine.dispose()
    return folder.parent.parent


def _processes_below(folder: Path) -> list[str]:
    """Processes that work in `folder`, also after its removal (Linux; elsewhere none are found)."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        # Another user's process, or one that has just ended.
        with suppress(OSError):
            if str(process.joinpath("cwd").readlink()).startswith(str(folder)):
                found.append(process.name)
    return found
