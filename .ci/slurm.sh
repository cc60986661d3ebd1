# Slurm for the tests, to be sourced: `install_slurm` fetches Debian's where it may.  The tests start
# a cluster of their own from it, and end it: tools/slurm_cluster.py.
install_slurm() {
    PATH=$PATH:/usr/sbin:/sbin command -v slurmctld > /dev/null \
        && PATH=$PATH:/usr/sbin:/sbin command -v munged > /dev/null && return 0
    if [ ! -f /etc/debian_version ] || [ "$(id -u)" != 0 ]; then
        printf '\n*** No Slurm, and only root on Debian can have it installed here.\n*** Jobs of Slurm are not tested.\n\n' >&2
        return 1
    fi
    echo "Installing slurm-wlm and munge"
    apt-get -q update > /dev/null \
        && DEBIAN_FRONTEND=noninteractive timeout 300 \
            apt-get -qq install --no-install-recommends slurm-wlm munge > /dev/null \
        || { printf '\n*** Slurm cannot be installed: its jobs are not tested.\n\n' >&2; return 1; }
}
