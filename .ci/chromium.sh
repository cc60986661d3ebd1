# A browser for the tests of pages, to be sourced: `install_chromium` fetches Debian's where it may.
# Without one those tests are skipped, each with its reason.
install_chromium() {
    command -v chromium > /dev/null || command -v chromium-browser > /dev/null && return 0
    if [ ! -f /etc/debian_version ] || [ "$(id -u)" != 0 ]; then
        printf '\n*** No chromium, and only root on Debian can have it installed here.\n*** Pages are not looked at.\n\n' >&2
        return 1
    fi
    echo "Installing chromium"
    apt-get -q update > /dev/null \
        && DEBIAN_FRONTEND=noninteractive timeout 300 \
            apt-get -qq install --no-install-recommends chromium > /dev/null \
        || { printf '\n*** chromium cannot be installed: pages are not looked at.\n\n' >&2; return 1; }
}
