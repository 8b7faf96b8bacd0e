#!/bin/sh
# Set up what the Makefile's targets need:
#   setup.sh environment LOCK   .venv with the locked packages and this checkout
#   setup.sh servers            PostgreSQL, PgBouncer and MariaDB programs (in CI MySQL's too), a Java runtime for Spark, a browser for its report
#   setup.sh mysql              a MySQL program
#   setup.sh java               a Java runtime for Spark
# What the system lacks is installed by apt where that is ours to do (root on Debian), without
# starting a service; elsewhere one line says what to install.
set -eu

can_apt() { [ "$(id -u)" = 0 ] && [ -e /etc/debian_version ] && command -v apt-get > /dev/null; }

apt_install() {
    echo "Installing $* by apt"
    export DEBIAN_FRONTEND=noninteractive
    [ -n "${apt_is_fresh:-}" ] || apt-get update -qq
    apt_is_fresh=yes
    apt-get install -qq --no-install-recommends "$@" > /dev/null
}

fail() { echo "setup: $*" >&2; exit 1; }

find_python() {
    for python in "${PYTHON:-python3}" python3.11 python3.12 python3.13 python3.14; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
            return
        fi
    done
    fail "Python 3.11 or later not found: install it, or set PYTHON to its path."
}

environment() {
    # A copied or moved .venv, or one whose Python has gone, is made anew.
    if ! .venv/bin/python -c 'import pip, sys; sys.exit(sys.prefix != sys.argv[1])' "$PWD/.venv" 2> /dev/null; then
        find_python
        if ! "$python" -c 'import ensurepip, venv' 2> /dev/null; then
            venv_package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
            can_apt || fail "$python cannot make environments: install its venv package (Debian: $venv_package)."
            apt_install "$venv_package"
        fi
        "$python" -m venv --clear .venv
    fi
    echo "Installing the packages of $1"
    .venv/bin/pip install --quiet --disable-pip-version-check --use-pep517 --require-hashes -r "$1"
    .venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
}

has() { PATH="$PATH:/usr/sbin:$(echo /usr/lib/postgresql/*/bin | tr ' ' ':')" command -v "$1" > /dev/null; }

postgresql() {
    [ -z "${STICKYBUS_TEST_POSTGRESQL_URL:-}" ] || return 0
    ! { has initdb && has postgres; } || return 0
    can_apt || fail "PostgreSQL not found: install its server, or set STICKYBUS_TEST_POSTGRESQL_URL."
    # Debian's package would make a cluster of its own and start it.
    mkdir -p /etc/postgresql-common/createcluster.d
    echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.d/no-main-cluster.conf
    apt_install postgresql
}

# Debian's package would start a service: its program is unpacked into a folder, and run from there.
pooler() {
    own_pgbouncer=/var/cache/stickybus/pgbouncer
    [ ! -x $own_pgbouncer/pgbouncer ] || return 0
    ! has pgbouncer || return 0
    can_apt || fail "PgBouncer not found: install it (Debian: pgbouncer)."
    [ -n "${apt_is_fresh:-}" ] || apt-get update -qq
    apt_is_fresh=yes
    # shellcheck disable=SC2046 -- one word for each library
    apt_install $(apt-cache depends pgbouncer | sed -n 's/^ *Depends: \(lib[^ ]*\)$/\1/p')
    mkdir -p "${own_pgbouncer%/*}"
    folder=$(mktemp -d $own_pgbouncer.XXXXXX)
    (cd "$folder" && apt-get download -qq -o APT::Sandbox::User=root pgbouncer && dpkg-deb --extract pgbouncer_*.deb unpacked) ||
        fail "PgBouncer could not be unpacked: install it (Debian: pgbouncer)."
    mv "$folder"/unpacked/usr/sbin/pgbouncer "$folder"
    rm -rf "$folder"/unpacked "$folder"/*.deb
    chmod 755 "$folder"
    # Another setup may have been faster.
    mv -T "$folder" $own_pgbouncer 2> /dev/null || rm -rf "$folder"
}

mariadb() {
    [ -z "${STICKYBUS_TEST_MARIADB_URL:-}" ] || return 0
    ! has mariadbd || return 0
    can_apt || fail "MariaDB not found: install its server, or set STICKYBUS_TEST_MARIADB_URL."
    # The core package holds the program and no service.
    apt_install mariadb-server-core
}

own_mysql=/var/cache/stickybus/mysql

mysql() {
    [ -z "${STICKYBUS_TEST_MYSQL_URL:-}" ] || return 0
    ! has_mysqld || return 0
    ! can_apt || mysql_by_apt || true
    has_mysqld || fail "MySQL not found: install its server, or set STICKYBUS_TEST_MYSQL_URL."
}

# MariaDB bears MySQL's names, too.
has_mysqld() {
    [ ! -x $own_mysql/mysqld ] || return 0
    has mysqld && ! readlink -f "$(PATH="$PATH:/usr/sbin" command -v mysqld)" | grep -q mariadbd
}

# Debian has MySQL in its unstable suite only: the server and its libraries are unpacked into a folder and
# run from there, with the loader that came along. Nothing of the system is changed.
mysql_by_apt() {
    echo "Unpacking MySQL into $own_mysql"
    [ -n "${apt_is_fresh:-}" ] || apt-get update -qq
    apt_is_fresh=yes
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Identifier: Packages' |
        sed -n 's/^Debian Debian //p' | head -n 1)
    mkdir -p "${own_mysql%/*}"
    folder=$(mktemp -d "$own_mysql.XXXXXX")
    mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/apt/none" "$folder/unpacked"
    : > "$folder/apt/status"
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$keys] $mirror unstable main" > "$folder/apt/sources.list"
    apt_aside update && apt_aside install --download-only mysql-server-core || { rm -rf "$folder"; return 1; }
    for package in "$folder"/apt/archives/*.deb; do
        dpkg-deb --extract "$package" "$folder/unpacked"
    done
    rm -rf "$folder/apt" "$folder/unpacked/usr/share/doc" "$folder/unpacked/usr/share/perl"
    cat > "$folder/mysqld" << 'EOF'
#!/bin/sh
# Runs the server with the libraries that it was built for.
root=$(dirname "$(readlink -f "$0")")/unpacked
libraries=$(echo "$root"/usr/lib/*-linux-gnu*)
exec "$libraries"/ld-linux*.so.* --library-path "$libraries" "$root/usr/sbin/mysqld" "$@" --basedir="$root/usr"
EOF
    chmod 755 "$folder" "$folder/mysqld"
    # Another setup may have been faster.
    { "$folder/mysqld" --version > /dev/null && mv -T "$folder" $own_mysql 2> /dev/null; } || rm -rf "$folder"
}

# apt with lists, a cache and a state of its own, in which nothing is installed.
apt_aside() {
    apt-get -qq --yes --no-install-recommends -o Dir::State="$folder/apt" -o Dir::State::status="$folder/apt/status" \
        -o Dir::State::lists="$folder/apt/lists" -o Dir::Cache="$folder/apt" -o Dir::Cache::archives="$folder/apt/archives" \
        -o Dir::Etc::sourcelist="$folder/apt/sources.list" -o Dir::Etc::sourceparts="$folder/apt/none" \
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts="$folder/apt/none" \
        -o APT::Sandbox::User=root -o Acquire::Languages=none "$@" > /dev/null
}

java_runtime() {
    ! has java || return 0
    if can_apt; then
        apt_install default-jre-headless
    else
        echo "No Java runtime: the spark extra needs one (Debian: default-jre-headless)." >&2
    fi
}

browser() {
    for program in chromium chromium-browser google-chrome; do
        ! has "$program" || return 0
    done
    if can_apt; then
        apt_install chromium
    else
        echo "No Chromium: the report's test needs one (Debian: chromium)." >&2
    fi
}

cd "$(dirname "$0")/.."
case "${1:-}" in
    environment) environment "$2" ;;
    servers) postgresql; pooler; mariadb; [ "${CI:-}" != true ] || mysql; java_runtime; browser ;;
    mysql) mysql ;;
    java) java_runtime ;;
    *) fail "usage: setup.sh environment LOCK | servers | mysql | java" ;;
esac
