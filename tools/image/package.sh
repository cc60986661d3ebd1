# Lays the project itself below /package, to be copied over what it depends on.
set -eu

sh /image/pip.sh wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir /wheel /source
sh /image/pip.sh --python /opt/hanglab/bin/python install --quiet --no-index --no-deps \
    --no-warn-script-location --root /package /wheel/hanglab-*.whl
