# The gateway in a container. Not run by our CI, which has no container engine.
#
#   docker build -t model-gateway .
#   docker run -p 8080:8080 -p 8081:8081 -v "$PWD:/etc/model-gateway:ro" -v gateway-data:/app/data model-gateway \
#     node src/launcher.js start --config /etc/model-gateway/gateway.yaml
#
# The folder, never the file: an editor puts a new file in the place of the old one, and a mounted file stays the old one. In gateway.yaml,
# `store: { path: /app/data }` is the volume, and listeners are at 0.0.0.0: the container's own loopback is where -p does not reach.

# glibc, not Alpine: see src/launcher.js. The version is the one pinned in package.json.
FROM node:26.10.0-bookworm-slim AS install
WORKDIR /app
COPY package.json package-lock.json ./
# The image is the pinned Node already: the one from npm (150 MB) stays out.
RUN npm ci --omit=dev --omit=optional --ignore-scripts

FROM node:26.10.0-bookworm-slim
# Node 26 needs libatomic, which slim images do not have of themselves.
RUN apt-get update && apt-get install -y --no-install-recommends libatomic1 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
ENV NODE_ENV=production
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
  CMD ["node", "-e", "fetch('http://127.0.0.1:9090/healthz').then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
# Not through npm, which would stand between the signals and the gateway.
CMD ["node", "src/launcher.js", "start"]
