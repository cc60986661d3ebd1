# Makes /opt/hanglab with what the project needs, from the pinned versions.
set -eu
cd /image

if python3 -c 'import torch' 2> /dev/null; then
    python3 -m venv --without-pip --system-site-packages /opt/hanglab
    sed -i '/^torch[^a-z]/d' requirements.txt constraints.txt
else
    python3 -m venv --without-pip /opt/hanglab
fi
sh pip.sh --python /opt/hanglab/bin/python install --quiet \
    --constraint constraints.txt --requirement requirements.txt
