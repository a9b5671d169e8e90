package commitlog

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

import (
	"github.com/rathcluster/rath/session"
)

// An IDGenerator makes the ids of new sessions. Generation and Partitions identify the
// set of event streams. They become part of each id, so that a node with other settings
// cannot read a session's log in the wrong place.
type IDGenerator struct {
	Generation uint32
	Partitions uint32
}

// ID makes an id from a body of at most 40 bytes of the id alphabet. The
// same body gives the same id.
func (m IDGenerator) ID(body string) session.ID {
	p := uint32(0)
	if m.Partitions > 1 {
		sum := sha256.Sum256([]byte(body))
		p = (uint32(sum[0])<<8 | uint32(sum[1])) % m.Partitions
	}
	return session.ID(body + "-" + strconv.FormatUint(uint64(m.Generation), 36) + "-" + strconv.FormatUint(uint64(p), 36))
}

// Child derives the id of a session that a run makes at a step. Every
// execution of the run derives the same one.
func (m IDGenerator) Child(t session.Tenant, run, path string) session.ID {
	sum := sha256.Sum256([]byte(string(t) + "\x00" + run + "\x00" + path))
	return m.ID(hex.EncodeToString(sum[:10]))
}
