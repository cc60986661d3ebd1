# Docker for CI, to be sourced: `start_docker` makes one answer where that can be done, `stop_docker`
# stops what was started.  A daemon that answers already is used, and left as it is.
#
# A daemon of ours keeps its images below HANGLAB_CI_DOCKER for the next time, away from those of
# the machine, and is told to end by the kernel should this shell be killed.

docker_data=${HANGLAB_CI_DOCKER:-/var/lib/hanglab-ci}
docker_run=/run/hanglab-ci
docker_pid=""
docker_bridge_was=""
docker_forward_was=""

# What is missing, on a line of its own that nobody overlooks; the tests go on without it.
no_docker() {
    printf '\n*** No containers: %s.\n*** Tests that need them are skipped.\n\n' "$1" >&2
    return 1
}

install_docker() {
    local missing=() pair
    for pair in docker:docker.io dockerd:docker.io debootstrap:debootstrap iptables:iptables \
        tc:iproute2 nsenter:util-linux; do
        PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" > /dev/null \
            || [[ " ${missing[*]} " == *" ${pair##*:} "* ]] || missing+=("${pair##*:}")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    [ -f /etc/debian_version ] || { no_docker "this is no Debian to install ${missing[*]} on"; return; }
    [ "$(id -u)" = 0 ] || { no_docker "only root can install ${missing[*]}"; return; }
    echo "Installing ${missing[*]}"
    apt-get -q update > /dev/null \
        && DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends \
            "${missing[@]}" > /dev/null \
        || no_docker "apt-get could not install ${missing[*]}"
}

# A daemon that was killed leaves the rules of its jobs' networks (hl-JOB).  They would change
# addresses in the next network that gets theirs, and no fault would look as it does elsewhere.
drop_stale_rules() {
    local table bridge gone=()
    for bridge in $({ iptables-save -t filter; iptables-save -t nat; } 2> /dev/null \
        | grep -oE '\bhl-[0-9a-f]{8}\b' | sort -u); do
        ip link show "$bridge" > /dev/null 2>&1 || gone+=("$bridge")
    done
    [ "${#gone[@]}" -gt 0 ] || return 0
    for table in filter nat; do
        iptables-save -t "$table" | grep -vwF "$(printf '%s\n' "${gone[@]}")" | iptables-restore
    done
}

start_docker() {
    if docker version > /dev/null 2>&1; then
        echo "Docker $(docker version --format '{{.Server.Version}}') runs already"
        return 0
    fi
    [ -z "${DOCKER_HOST:-}" ] || { no_docker "nobody answers at DOCKER_HOST=$DOCKER_HOST"; return; }
    install_docker || return
    [ "$(id -u)" = 0 ] || { no_docker "no Docker answers, and only root can start one"; return; }
    grep -q cgroup /proc/mounts || { no_docker "no control groups are mounted"; return; }

    local path=$PATH:/usr/sbin:/sbin with=()
    export PATH=$path
    # `docker0` and the rules of the packet filter outlive a daemon: they are put back afterwards.
    docker_bridge_was=$(ip -o link show docker0 2> /dev/null || true)
    docker_forward_was=$(cat /proc/sys/net/ipv4/ip_forward)
    mkdir -p "$docker_data" "$docker_run"
    drop_stale_rules
    local table
    for table in filter nat; do
        iptables-save -t "$table" > "$docker_run/$table.rules" 2> /dev/null || true
    done
    ! command -v setpriv > /dev/null || with=(setpriv --pdeathsig TERM)
    "${with[@]}" dockerd --host "unix://$docker_run/docker.sock" --data-root "$docker_data" \
        --exec-root "$docker_run/exec" --pidfile "$docker_run/pid" --storage-driver overlay2 \
        > "$docker_run/log" 2>&1 < /dev/null &
    docker_pid=$!
    export DOCKER_HOST=unix://$docker_run/docker.sock

    local waited=0
    until docker version > /dev/null 2>&1; do
        if ! kill -0 "$docker_pid" 2> /dev/null || [ "$waited" -ge 120 ]; then
            tail -n 20 "$docker_run/log" >&2
            stop_docker
            unset DOCKER_HOST
            no_docker "dockerd does not start on this machine; its last words are above"
            return
        fi
        sleep 0.5
        waited=$((waited + 1))
    done
    echo "Started Docker $(docker version --format '{{.Server.Version}}')"
}

# Whether a container of an image can run; on some machines a daemon starts and none can.
runs_containers() {
    local said
    said=$(docker run --rm --network none --entrypoint true "$1" 2>&1) \
        || no_docker "no container can run on this machine: $(sed 's/[. ]*$//; q' <<< "$said")"
}

# Says nothing: a test runner's last line is to stay the last.
stop_docker() {
    [ -n "$docker_pid" ] || return 0
    local pid=$docker_pid containerd waited=0 table
    docker_pid=""
    containerd=$(cat "$docker_run/exec/containerd/containerd.pid" 2> /dev/null || true)
    kill "$pid" 2> /dev/null || true
    while kill -0 "$pid" 2> /dev/null && [ "$waited" -lt 60 ]; do
        sleep 0.5
        waited=$((waited + 1))
    done
    if kill -0 "$pid" 2> /dev/null; then
        kill -KILL "$pid" ${containerd:+"$containerd"} 2> /dev/null || true
    fi
    wait "$pid" 2> /dev/null || true
    [ -n "$docker_bridge_was" ] || ip link delete docker0 2> /dev/null || true
    for table in filter nat; do
        [ ! -s "$docker_run/$table.rules" ] \
            || iptables-restore < "$docker_run/$table.rules" 2> /dev/null || true
    done
    echo "$docker_forward_was" 2> /dev/null > /proc/sys/net/ipv4/ip_forward || true
    # The daemon leaves the namespace of containers without a network mounted there.
    umount "$docker_run"/exec/netns/* 2> /dev/null || true
    rm -rf "$docker_run" || true
}
