#!/usr/bin/env bash
# Builds the image from the repository.  `make image` calls it; docs/containers.md has the settings.
set -euo pipefail
cd "$(dirname "$0")/../.."

image=${IMAGE:-hanglab:latest}
base=${BASE_IMAGE:-}

fail() {
    echo "make image: $1" >&2
    exit 1
}

command -v docker > /dev/null || fail "there is no docker command; install Docker (Debian: \
apt-get install docker.io)"
said=$(docker version --format '{{.Server.Version}}' 2>&1) || fail "Docker does not answer: $said"

[ -n "$base" ] || base=$(bash tools/image/base.sh) || fail "there is no base image; see above"

# What the build needs of this machine goes in by the context, and no further than its first stages.
handed=build/image
mkdir -p build
exec 9> build/image.lock
flock 9
rm -rf "$handed"
mkdir -p "$handed"
if [ -n "${WHEELS:-}" ]; then
    [ -d "$WHEELS" ] || fail "WHEELS is no folder: $WHEELS"
    mkdir "$handed/wheels"
    find "$WHEELS" -maxdepth 1 -name '*.whl' -exec cp -lt "$handed/wheels" {} + 2> /dev/null \
        || find "$WHEELS" -maxdepth 1 -name '*.whl' -exec cp -ft "$handed/wheels" {} +
fi
if [ -n "${CA_BUNDLE:-}" ]; then
    [ -f "$CA_BUNDLE" ] || fail "CA_BUNDLE is no file: $CA_BUNDLE"
    cp "$CA_BUNDLE" "$handed/certificates.pem"
fi

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
options=(--network "${BUILD_NETWORK:-host}" --tag "$image"
    --build-arg "BASE_IMAGE=$base" --build-arg "VERSION=$version")
for name in EXTRAS PIP_INDEX_URL PIP_EXTRA_INDEX_URL HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [ -z "${!name:-}" ] || options+=(--build-arg "$name=${!name}")
done
log=$(mktemp)
trap 'rm -f "$log"; rm -rf "$handed"' EXIT
if ! docker build --force-rm "${options[@]}" . 2>&1 | tee "$log"; then
    ! grep -q 'no space left on device' "$log" || fail "Docker's disk is full: \
\`docker system df\` shows what takes the room, \`docker system prune\` makes some"
    fail "the build failed; see above"
fi
docker image inspect --format "$image: {{.Size}} bytes on $base" "$image"
