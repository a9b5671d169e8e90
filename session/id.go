package session

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxID is the longest id, in bytes.
const MaxID = 64

// Tenant separates customers: no reference crosses tenants.
type Tenant string

// DefaultTenant is the tenant of a client without credentials.
const DefaultTenant Tenant = "default"

// ID names a session within its tenant. Like every id it matches
// [A-Za-z0-9_-]{1,64}, so that it is always one token of a NATS subject.
type ID string

// Key names a session globally.
type Key struct {
	Tenant Tenant `json:"tenant"`
	ID     ID     `json:"session"`
}

// String returns "tenant/session".
func (k Key) String() string { return string(k.Tenant) + "/" + string(k.ID) }

// Version counts the content events of a [Session]. It is not a position in the log,
// and is independent of the batching of events into commits.
type Version uint64

// Ref names one value: a session at a version.
type Ref struct {
	Key
	Version Version `json:"version"`
}

// String returns "session:version", the form that the command line accepts.
func (r Ref) String() string { return string(r.ID) + ":" + strconv.FormatUint(uint64(r.Version), 10) }

// ParseRef reads "session:version" for a tenant. Without a colon the version is zero,
// which callers interpret as "the newest".
func ParseRef(t Tenant, s string) (Ref, error) {
	name, tail, found := strings.Cut(s, ":")
	r := Ref{Key: Key{t, ID(name)}}
	if err := ValidID("session", name); err != nil {
		return Ref{}, err
	}
	if !found {
		return r, nil
	}
	n, err := strconv.ParseUint(tail, 10, 64)
	if err != nil {
		return Ref{}, fmt.Errorf("session: version in %q: want session:number", s)
	}
	r.Version = Version(n)
	return r, nil
}

// ValidID reports whether s is a valid id. what names the kind of id in the error
// ("tenant", "session", "run", "workflow", "node").
func ValidID(what, s string) error {
	if s == "" {
		return fmt.Errorf("session: empty %s id: want 1 to %d of A-Z a-z 0-9 _ -", what, MaxID)
	}
	if len(s) > MaxID {
		return fmt.Errorf("session: %s id of %d bytes: at most %d are allowed", what, len(s), MaxID)
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return fmt.Errorf("session: %s id %q: only A-Z a-z 0-9 _ - are allowed", what, s)
		}
	}
	return nil
}

// Valid checks both parts of the key.
func (k Key) Valid() error {
	if err := ValidID("tenant", string(k.Tenant)); err != nil {
		return err
	}
	return ValidID("session", string(k.ID))
}

// Locate reads generation and partition from an id that an IDGenerator made.
func (id ID) Locate() (generation, partition uint32, ok bool) {
	head, p, found := cutLast(string(id), "-")
	if !found {
		return 0, 0, false
	}
	body, g, found := cutLast(head, "-")
	if !found || body == "" {
		return 0, 0, false
	}
	gn, err := strconv.ParseUint(g, 36, 32)
	if err != nil {
		return 0, 0, false
	}
	pn, err := strconv.ParseUint(p, 36, 32)
	if err != nil {
		return 0, 0, false
	}
	return uint32(gn), uint32(pn), true
}

func cutLast(s, sep string) (head, tail string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
