# Makes /opt/hanglab with what the project needs, from the pinned versions.  Its argument: extras.
set -eu
cd /image

[ ! -f certificates.pem ] || export PIP_CERT=/image/certificates.pem
[ ! -d wheels ] || export PIP_FIND_LINKS=/image/wheels
export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# pip and the builder stay out of the image.
python3 -m venv /tools
/tools/bin/pip install --quiet --constraint constraints.txt hatchling

if python3 -c 'import torch' 2> /dev/null; then
    python3 -m venv --without-pip --system-site-packages /opt/hanglab
    /tools/bin/python requirements.py "$1" --without torch > requirements.txt
    grep -v '^torch==' constraints.txt > pinned.txt
else
    python3 -m venv --without-pip /opt/hanglab
    /tools/bin/python requirements.py "$1" > requirements.txt
    cp constraints.txt pinned.txt
fi
/tools/bin/pip --python /opt/hanglab/bin/python install \
    --constraint pinned.txt --requirement requirements.txt
