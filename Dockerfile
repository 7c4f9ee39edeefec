# The gateway in a container. Not run by our CI, which has no container engine.
#
#   docker build -t model-gateway .
#   docker run --stop-timeout 35 -p 8080:8080 -p 8081:8081 -v gateway-data:/app/data model-gateway
#
# That is the simulator, as after npm start. With a gateway.yaml of yours, and the admin listener for this machine alone:
#
#   docker run --stop-timeout 35 -p 8080:8080 -p 8081:8081 -p 127.0.0.1:9090:9090 -e GATEWAY_ADMIN_LISTEN=0.0.0.0 \
#     -v "$PWD:/etc/model-gateway:ro" -v gateway-data:/app/data model-gateway \
#     node src/launcher.js start --config /etc/model-gateway/gateway.yaml
#
# The stop timeout is longer than drain_delay and drain_timeout together: docker kills after 10 s of itself. The
# folder, never the file: an editor puts a new file in the place of the old one, and a mounted file stays the old one.
# In a gateway.yaml of yours `store: { path: /app/data }` is the volume, and listeners are at ${GATEWAY_LISTEN}, which is
# 0.0.0.0 here: the container's own loopback is where -p does not reach.

# glibc, not Alpine: see src/launcher.js. The version is the one pinned in package.json.
# For builds that can be repeated to the byte, name it by its digest: --build-arg NODE=node@sha256:…
ARG NODE=node:26.10.0-bookworm-slim
FROM ${NODE} AS install
WORKDIR /app
COPY package.json package-lock.json ./
# The image is the pinned Node already: the one from npm (150 MB) stays out.
RUN npm ci --omit=dev --omit=optional --ignore-scripts

FROM ${NODE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="model-gateway" \
  org.opencontainers.image.description="A paid gateway to text, image and video models" \
  org.opencontainers.image.licenses="Apache-2.0" \
  org.opencontainers.image.version="${VERSION}" \
  org.opencontainers.image.revision="${REVISION}"
# Node 26 needs libatomic, which slim images do not have of themselves.
RUN apt-get update && apt-get install -y --no-install-recommends libatomic1 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
# The file for the health check: /dev/shm can be written to in a container whose root is read-only.
ENV NODE_ENV=production GATEWAY_LISTEN=0.0.0.0 GATEWAY_ADDRESS_FILE=/dev/shm/gateway-admin
COPY --from=install /app/node_modules ./node_modules
COPY . .
# The ledger. Made here, so that a new volume belongs to the user who writes it.
RUN install -d -o node -g node -m 0700 /app/data
# Compiled code of the modules, which halves starts and reloads: a container whose root is read-only reads it all the same.
RUN install -d -o node -g node -m 0755 node_modules/.cache && install -d -o node -g node -m 0700 node_modules/.cache/compiled
VOLUME /app/data
USER node
RUN node src/launcher.js check
EXPOSE 8080 8081 9090
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
  CMD ["bash", "/app/config/deploy/health.sh"]
# Not through npm, which would stand between the signals and the gateway.
CMD ["node", "src/launcher.js", "start"]
