# The image of Rath: node, router and the command line, static, on nothing.
#
#   docker build --build-arg VERSION=v0.3.0 -t rath:v0.3.0 .
#
# The same sources, VERSION and Go release give the same files, byte by byte.
# Nodes with workflows of your own are programs of your own: build them like
# these ones, see helm/README.md.
ARG GO=1.26

FROM --platform=$BUILDPLATFORM golang:${GO} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH VERSION=devel
ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH GOTOOLCHAIN=local
RUN go build -trimpath -buildvcs=false -o /root.fs/usr/local/bin/ \
	-ldflags "-s -w -buildid= -X github.com/rathcluster/rath/node.version=${VERSION}" \
	./cmd/node ./cmd/router ./cmd/rath
RUN .ci/licences /root.fs/usr/share/licenses/rath
# What a file system needs besides: authorities for TLS, a user for programs
# that ask for their name, a place for what passes and one for the store.
RUN mkdir -p -m 755 /root.fs/etc/ssl/certs /root.fs/var/lib/rath && mkdir -m 1777 /root.fs/tmp \
	&& cp /etc/ssl/certs/ca-certificates.crt /root.fs/etc/ssl/certs/ \
	&& echo 'rath:x:65532:65532:rath:/var/lib/rath:/sbin/nologin' >/root.fs/etc/passwd \
	&& echo 'rath:x:65532:' >/root.fs/etc/group \
	&& find /root.fs -exec touch -h -d @0 {} +

FROM scratch
ARG VERSION=devel
LABEL org.opencontainers.image.title="Rath" \
	org.opencontainers.image.description="Fleets of LLM agents: node, router and command line" \
	org.opencontainers.image.source="https://github.com/rathcluster/rath" \
	org.opencontainers.image.licenses="Apache-2.0" \
	org.opencontainers.image.version="${VERSION}"
COPY --from=build /root.fs/ /
COPY --from=build --chown=65532:65532 /root.fs/var/lib/rath /var/lib/rath
ENV PATH=/usr/local/bin HOME=/var/lib/rath RATH_STORE=/var/lib/rath/store
WORKDIR /var/lib/rath
USER 65532:65532
# The image has no entrypoint: name one of node, router and rath.
CMD ["node"]
