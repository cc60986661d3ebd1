#!/usr/bin/env bash
# Builds a slim base image from Debian's packages, for machines that reach no image registry.
#
#   base.sh IMAGE      needs root and debootstrap; SUITE and MIRROR may be set
set -euo pipefail

image=${1:?the name of the image}
suite=${SUITE:-bookworm}
mirror=${MIRROR:-http://deb.debian.org/debian}

fail() {
    echo "base image: $1" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || fail "debootstrap works as root only; or say make image BASE_IMAGE=... with \
an image that this Docker has"
command -v debootstrap > /dev/null || fail "debootstrap is missing: apt-get install debootstrap"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

debootstrap --variant=minbase \
    --include=ca-certificates,iproute2,libfaketime,python3,python3-venv \
    "$suite" "$work/root" "$mirror" > "$work/log" 2>&1 \
    || { tail -n 20 "$work/log" >&2; fail "debootstrap of $suite from $mirror failed"; }
rm -rf "$work"/root/var/cache/apt/* "$work"/root/var/lib/apt/lists/* "$work"/root/var/log/* \
    "$work"/root/usr/share/doc/* "$work"/root/usr/share/man/* "$work"/root/usr/share/locale/* \
    "$work"/root/dev/*
tar --numeric-owner -C "$work/root" -c . \
    | docker import --change 'CMD ["bash"]' --change 'LABEL hanglab.base=debootstrap' - "$image"
