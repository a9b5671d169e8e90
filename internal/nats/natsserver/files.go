package natsserver

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// Layout of a server's files, below the directory that it makes in its store:
// account/streams/stream/{meta.inf,msgs/n.blk,obs/consumer/…}. A message is written to its
// block before it is acknowledged.
//
// One order is not kept. If a message replaces another one of its subject, and the block of
// the old one is compacted because of that, a power cut before the round that syncs the new
// one loses both. It takes a block of more than 2 MiB of which more than half was replaced,
// and a cut in the millisecond after.

// knownRelease is the release of nats-server whose layout was read, and verified by cutting
// the power.
const knownRelease = "2.15.2"

// filesDir is the server's own directory.
const filesDir = "jetstream"

// place is the kind of a directory, by its depth.
type place int

const (
	placeStream   place = 3 // account/streams/stream
	placeConsumer place = 5
)

func (p place) within(dir string) place { return p + 1 }

// passing reports whether a file is temporary and will be renamed.
func passing(name string) bool {
	return strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, ".new")
}

// mayBeLost reports whether the stream in a directory is stored asynchronously by its
// server, at any level: then no acknowledgement waits for it.
func mayBeLost(dir string) (bool, error) {
	data, err := os.ReadFile(filepath.Join(dir, "meta.inf"))
	if os.IsNotExist(err) {
		return false, nil // it is being created
	}
	var meta struct {
		Mode string `json:"persist_mode"`
	}
	if err == nil {
		err = json.Unmarshal(data, &meta)
	}
	if err != nil {
		return false, fmt.Errorf("read the settings of stream %s: %w", filepath.Base(dir), err)
	}
	return meta.Mode == "async", nil
}

// unknown returns the reason the layout of a server's files in a directory is not known,
// nil if it is.
func unknown(dir string) error {
	if server.VERSION != knownRelease {
		return fmt.Errorf("of nats-server the files of release %s are known, not of %s", knownRelease, server.VERSION)
	}
	return unknownFileSystem(dir)
}
