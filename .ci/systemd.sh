# systemd's own reader of units, to be sourced: `install_systemd` fetches Debian's (15 MB) where it may.
# It starts nothing.  Without it the unit of the watch is not verified, and the tests say so.
install_systemd() {
    command -v systemd-analyze > /dev/null && return 0
    if [ ! -f /etc/debian_version ] || [ "$(id -u)" != 0 ]; then
        printf '\n*** No systemd-analyze, and only root on Debian can have it installed here.\n*** The unit of the watch is not verified.\n\n' >&2
        return 1
    fi
    echo "Installing systemd"
    apt-get -q update > /dev/null \
        && DEBIAN_FRONTEND=noninteractive timeout 300 \
            apt-get -qq install --no-install-recommends systemd > /dev/null \
        || { printf '\n*** systemd cannot be installed: the unit of the watch is not verified.\n\n' >&2; return 1; }
}
