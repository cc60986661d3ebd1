# Brings an image to what hanglab stands on: Python with venv, ip, libfaketime, and a user.
set -eu

wanted="ca-certificates iproute2 libfaketime"
command -v python3 > /dev/null && python3 -c 'import ensurepip, venv' 2> /dev/null \
    || wanted="$wanted python3 python3-venv"
missing=""
for package in $wanted; do
    dpkg -s "$package" > /dev/null 2>&1 || missing="$missing $package"
done
if [ -n "$missing" ]; then
    apt-get -q update
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends $missing
    apt-get clean
    rm -rf /var/lib/apt/lists/*
fi

# Some bases give the number 1000 to a user of their own.
taken=$(getent passwd 1000 | cut -d: -f1 || true)
[ -z "$taken" ] || userdel --remove "$taken" 2> /dev/null
useradd --uid 1000 --user-group --create-home --shell /bin/bash hanglab
