# Lays the project itself below /package, to be copied over what it depends on.
set -eu
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

/tools/bin/pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir /wheel /source
/tools/bin/pip --python /opt/hanglab/bin/python install --quiet --no-index --no-deps \
    --no-warn-script-location --root /package /wheel/hanglab-*.whl
