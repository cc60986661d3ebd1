# One image with scenarios, recorder and analyzer: `docker run --rm hanglab run`.  It can be built
# without BuildKit; docs/containers.md says how, also where there is no registry.
#
# BASE_IMAGE may be any image with apt, also a CUDA or PyTorch one: its torch is used if it has one.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS system
COPY tools/image/system.sh /tmp/
RUN sh /tmp/system.sh && rm /tmp/system.sh

FROM system AS tools
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
# What `make image` lays into build/image need not be there: wheels of its own (torch for CPUs, say)
# and a bundle of certificates to fetch the rest with.  Neither gets into the last stage.
COPY constraints.txt tools/image/pip.sh build/imag[e] /image/
RUN python3 -m venv /tools \
    && sh /image/pip.sh install --quiet --constraint /image/constraints.txt hatchling

# A stage of its own: as long as these lines stay the same, so does the layer made from them.
FROM tools AS requirements
ARG EXTRAS=run
COPY pyproject.toml tools/image/requirements.py /image/
RUN /tools/bin/python /image/requirements.py "${EXTRAS}" > /requirements.txt

FROM tools AS dependencies
COPY tools/image/dependencies.sh /image/
COPY --from=requirements /requirements.txt /image/
RUN sh /image/dependencies.sh

FROM dependencies AS package
COPY . /source/
RUN sh /source/tools/image/package.sh

FROM system
ARG VERSION=0.1.0
LABEL hanglab.version=${VERSION}
COPY --from=dependencies /opt/hanglab /opt/hanglab
COPY --from=package /package /
ENV PATH=/opt/hanglab/bin:${PATH} PYTHONUNBUFFERED=1
USER hanglab
WORKDIR /home/hanglab
HEALTHCHECK --interval=60s --timeout=20s --retries=2 CMD ["hanglab", "--version"]
ENTRYPOINT ["hanglab"]
CMD ["--help"]
