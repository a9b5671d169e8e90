# The image of Rath: the program rath, static, on nothing; and with --target tools
# beside a shell, git and Python, for agents that run commands and for an operator's
# toolbox. `rath node` and `rath router` are its daemons.
#
#   docker build --build-arg VERSION=v0.3.0 -t rath:v0.3.0 .
#   docker build --build-arg VERSION=v0.3.0 --target tools -t rath:v0.3.0-tools .
#
# The same sources, VERSION and Go release give the same files, byte by byte.
# A node with workflows of your own is a program of yours in an image of its own:
# `rath init` writes a Dockerfile for it, see helm/README.md.
ARG GO=1.26
ARG TOOLS=debian:stable-slim

FROM --platform=$BUILDPLATFORM golang:${GO} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH VERSION=devel
ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH GOTOOLCHAIN=local
RUN go build -trimpath -buildvcs=false -o /root.fs/usr/local/bin/ \
	-ldflags "-s -w -buildid= -X github.com/rathcluster/rath/node.version=${VERSION}" \
	./cmd/rath
RUN .ci/licences /root.fs/usr/share/licenses/rath
# What a file system needs besides: authorities for TLS, a user for programs
# that ask for their name, a place for what passes and one for the store.
RUN mkdir -p -m 755 /root.fs/etc/ssl/certs /root.fs/var/lib/rath && mkdir -m 1777 /root.fs/tmp \
	&& cp /etc/ssl/certs/ca-certificates.crt /root.fs/etc/ssl/certs/ \
	&& echo 'rath:x:65532:65532:rath:/var/lib/rath:/sbin/nologin' >/root.fs/etc/passwd \
	&& echo 'rath:x:65532:' >/root.fs/etc/group \
	&& find /root.fs -exec touch -h -d @0 {} +

FROM ${TOOLS} AS tools
ARG VERSION=devel
LABEL org.opencontainers.image.title="Rath with tools" \
	org.opencontainers.image.description="Fleets of LLM agents: the program rath, with a shell, git and Python" \
	org.opencontainers.image.source="https://github.com/rathcluster/rath" \
	org.opencontainers.image.licenses="Apache-2.0" \
	org.opencontainers.image.version="${VERSION}"
# A base that has them is taken as it is.
RUN { command -v bash && command -v git && command -v python3; } >/dev/null \
	|| { apt-get update && apt-get install -y --no-install-recommends bash git python3 && rm -rf /var/lib/apt/lists/*; }
# Directories that it has, /bin and /lib among them, stay as they are.
COPY --from=build /root.fs/usr/local/bin/ /usr/local/bin/
COPY --from=build /root.fs/usr/share/licenses/rath /usr/share/licenses/rath
COPY --from=build /root.fs/etc/ /etc/
COPY --from=build --chown=65532:65532 /root.fs/var/lib/rath /var/lib/rath
ENV HOME=/var/lib/rath RATH_STORE=/var/lib/rath/store
WORKDIR /var/lib/rath
USER 65532:65532
CMD ["rath", "node"]

# The last one is what is built without a target.
FROM scratch
ARG VERSION=devel
LABEL org.opencontainers.image.title="Rath" \
	org.opencontainers.image.description="Fleets of LLM agents: the program rath" \
	org.opencontainers.image.source="https://github.com/rathcluster/rath" \
	org.opencontainers.image.licenses="Apache-2.0" \
	org.opencontainers.image.version="${VERSION}"
COPY --from=build /root.fs/ /
COPY --from=build --chown=65532:65532 /root.fs/var/lib/rath /var/lib/rath
ENV PATH=/usr/local/bin HOME=/var/lib/rath RATH_STORE=/var/lib/rath/store
WORKDIR /var/lib/rath
USER 65532:65532
# The image has no entrypoint: name the program, rath, and its command.
CMD ["rath", "node"]
