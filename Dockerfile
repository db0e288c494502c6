# One image for all services and servers. The command selects one: python -m services.<name>, or
# topolog. Built for each platform natively or by emulation; every package of the lock has wheels for
# amd64 and arm64. `make digests` sets the digest of the base image's index, which has all platforms.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE} AS build
WORKDIR /src
RUN python -m venv /opt/topolog
COPY pyproject.toml requirements.lock ./
COPY scripts/runtime_lock.py scripts/
RUN python scripts/runtime_lock.py . > runtime.lock \
    && /opt/topolog/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r runtime.lock \
    && /opt/topolog/bin/python -m pip uninstall --yes --quiet setuptools pip
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
COPY scripts/build_kernel.py scripts/
COPY services/scheduler/snapshot/compiled services/scheduler/snapshot/compiled
RUN python scripts/build_kernel.py --required

FROM ${BASE}
# Postgres refuses root, and initdb asks the password database for its user. Folders are here for the volumes, which take their owner
# from them: root may be the first to write a seed (credentials-real), and others must be able to after it.
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/topolog --shell /usr/sbin/nologin topolog \
    && install -d -m 0700 -o topolog -g topolog /var/lib/topolog /traces \
    && install -d -m 0755 -o topolog -g topolog /etc/topolog/nats /etc/topolog/credentials \
    && install -d -m 0711 -o topolog -g topolog /etc/topolog/credentials/seeds
COPY --from=build /opt/topolog /opt/topolog
WORKDIR /opt/topolog/app
COPY migrations migrations
COPY shared shared
COPY services services
COPY --from=build /src/services/scheduler/snapshot/_kernel.abi3.so services/scheduler/snapshot/
COPY plugins plugins
# Services may not write to their code's folder, so it is compiled here, and not at each start.
RUN /opt/topolog/bin/python -m compileall -q . \
    && /opt/topolog/bin/python -c "import services.scheduler.service, services.binder.service, services.topology_store.service"
RUN printf '#!/bin/sh\nexec python -m services.cli.main "$@"\n' > /opt/topolog/bin/topolog \
    && printf '#!/bin/sh\nexec python -m services.exporter "$@"\n' > /opt/topolog/bin/topolog-exporter \
    && chmod 0755 /opt/topolog/bin/topolog /opt/topolog/bin/topolog-exporter
ENV PYTHONPATH=/opt/topolog/app \
    PATH=/opt/topolog/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# Here, because a changed value would discard the layers below it.
ARG BASE
ARG VERSION=""
ARG REVISION=""
LABEL org.opencontainers.image.title="Topolog" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="docker.io/library/${BASE}" \
      org.opencontainers.image.description="A scheduling control plane for Kubernetes that places pods onto NUMA zones, and remembers." \
      org.opencontainers.image.licenses="Apache-2.0"
# There is no VOLUME, because every container that mounts no volume there would leave an unnamed
# one.
USER 10001:10001
CMD ["topolog", "--help"]
