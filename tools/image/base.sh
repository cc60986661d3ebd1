#!/usr/bin/env bash
# Sees to it that Docker has a base image, and prints its name: the usual slim one with Python, or
# where no registry has it for this machine one of Debian's packages (needs root and debootstrap).
# SUITE and MIRROR say which Debian.
set -euo pipefail

usual=python:3.11-slim-bookworm
own=hanglab-base:latest
suite=${SUITE:-bookworm}
mirror=${MIRROR:-http://deb.debian.org/debian}
#: One that was made otherwise is made anew.
made=$suite-$(sha256sum "$0" | cut -c1-12)

say() {
    echo "base image: $1" >&2
}

if docker image inspect "$usual" > /dev/null 2>&1 || docker pull --quiet "$usual" > /dev/null 2>&1
then
    echo "$usual"
    exit
fi
if [ "$(docker image inspect --format '{{index .Config.Labels "hanglab.base"}}' "$own" 2> /dev/null)" \
    = "$made" ]; then
    echo "$own"
    exit
fi
say "no registry has $usual for this machine; making $own with debootstrap"
if [ "$(id -u)" != 0 ]; then
    say "debootstrap works as root only; or give the name of an image: make image BASE_IMAGE=..."
    exit 1
fi
PATH=$PATH:/usr/sbin:/sbin
if ! command -v debootstrap > /dev/null; then
    say "debootstrap is missing: apt-get install debootstrap"
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Nobody needs a half-made base after a power cut: dpkg may leave writing to the kernel.
mkdir -p "$work/root/etc/dpkg/dpkg.cfg.d"
echo force-unsafe-io > "$work/root/etc/dpkg/dpkg.cfg.d/unsafe-io"
if ! debootstrap --variant=minbase \
    --include=ca-certificates,iproute2,libfaketime,python3,python3-venv \
    "$suite" "$work/root" "$mirror" > "$work/log" 2>&1; then
    tail -n 20 "$work/log" >&2
    say "debootstrap of $suite from $mirror failed; its last words are above"
    exit 1
fi
cd "$work/root"
rm -rf etc/dpkg/dpkg.cfg.d/unsafe-io var/cache/apt/* var/lib/apt/lists/* var/log/* dev/* \
    usr/share/doc/* usr/share/man/* usr/share/locale/*
tar --numeric-owner -c . \
    | docker import --change 'CMD ["bash"]' --change "LABEL hanglab.base=$made" - "$own" > /dev/null
echo "$own"
