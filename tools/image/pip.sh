# pip of /tools, with what `make image` has handed in.  It stays out of the image, as the builder does.
set -eu
[ ! -f /image/certificates.pem ] || export PIP_CERT=/image/certificates.pem
[ ! -d /image/wheels ] || export PIP_FIND_LINKS=/image/wheels
export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# Some bases pin what they have for every pip; /opt/hanglab has versions of its own.
unset PIP_CONSTRAINT
exec /tools/bin/pip "$@"
