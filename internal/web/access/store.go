package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The kinds of entries, the first tokens of their keys.
const (
	kindToken   = "token"
	kindSession = "session"
)

const (
	// maxOnly bounds the workflows of a narrow token, and maxEntry the bytes of an entry.
	maxOnly  = 64
	maxEntry = 8 << 10
	// markerFor is how long the marker of a removed entry stays, and how long an entry
	// outlives its expiry: longer than a gateway keeps a view that it cannot renew.
	markerFor = time.Hour
)

// Entry is a stored token or page session. The operator writes tokens and gateways write
// page sessions; neither holds a secret.
type Entry struct {
	ID      string          `json:"id"`
	Hash    string          `json:"hash,omitempty"` // SHA-256 of the secret, in hexadecimal
	Tenant  session.Tenant  `json:"tenant"`
	User    string          `json:"user"`
	Role    permission.Role `json:"role"`
	Only    []string        `json:"only,omitempty"`
	Created int64           `json:"created_ms"`
	Expires int64           `json:"expires_ms,omitempty"` // 0: never
	// Token is the token with which a page session began: it ends with the token.
	Token string `json:"token,omitempty"`
	// Says is the identity that the provider of a page session stated, such as an e-mail
	// address, which proves nothing. Issuer is the provider.
	Says   string `json:"says,omitempty"`
	Issuer string `json:"issuer,omitempty"`

	kind string
}

// expired reports whether the entry has ended by its own expiry.
func (e *Entry) expired(now time.Time) bool { return e.Expires != 0 && now.UnixMilli() >= e.Expires }

// check refuses an entry that grants more than an entry may.
func (e *Entry) check() error {
	if err := session.ValidID("tenant", string(e.Tenant)); err != nil {
		return err
	}
	if err := CheckUser(e.User, e.Tenant); err != nil {
		return err
	}
	if err := CheckRole(e.Role); err != nil {
		return err
	}
	if len(e.Only) > maxOnly {
		return fmt.Errorf("%d workflows: %w: a token is for at most %d", len(e.Only), run.ErrMalformed, maxOnly)
	}
	for _, w := range e.Only {
		if err := session.ValidID("workflow", w); err != nil {
			return err
		}
	}
	if e.Only != nil && e.Role != permission.RoleSubmit {
		return fmt.Errorf("a token for some workflows has the role %s: %w; it submits them and sees its own runs", permission.RoleSubmit, run.ErrMalformed)
	}
	return nil
}

// Grantable are the roles that a token or a page session may have.
var Grantable = []permission.Role{permission.RoleObserve, permission.RoleSubmit, permission.RoleApprove, permission.RoleOperate, permission.RoleClient}

// CheckRole refuses a role that tokens and page sessions cannot have.
func CheckRole(r permission.Role) error {
	if slices.Contains(Grantable, r) {
		return nil
	}
	return fmt.Errorf("role %q: %w: want one of observe, submit, approve, operate and client", r, run.ErrMalformed)
}

// Store is the bucket of tokens and page sessions. It is safe for concurrent use.
type Store struct {
	messages *conn.Messages
	streams  *streams.Streams
}

// NewStore returns the bucket over a connection to the account of the streams.
func NewStore(s *streams.Streams) *Store { return &Store{s.Messages, s} }

const (
	bucket = "KV_" + messages.BucketAccess
	// The headers of a bucket's messages.
	headerOperation = "KV-Operation"
	headerTTL       = "Nats-TTL"
)

// CreateToken stores a token and returns its text, which is not stored. The entry's ID,
// Hash and Created are set here.
func (s *Store) CreateToken(ctx context.Context, e *Entry) (text string, err error) {
	own := newSecret()
	e.kind, e.ID, e.Hash = kindToken, own.id, own.hash()
	if err := s.put(ctx, e); err != nil {
		return "", fmt.Errorf("access: create the token: %w", err)
	}
	return own.String(), nil
}

// put creates an entry.
func (s *Store) put(ctx context.Context, e *Entry) error {
	now := time.Now()
	e.Created = now.UnixMilli()
	if err := e.check(); err != nil {
		return err
	}
	if e.expired(now) {
		return fmt.Errorf("it would expire at once: %w: choose a later time", run.ErrMalformed)
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	header := nats.Header{}
	if e.Expires != 0 {
		header.Set(headerTTL, seconds(time.UnixMilli(e.Expires).Sub(now)+markerFor))
	}
	_, err = s.messages.PublishExpecting(ctx, subjectOf(e.kind, e.ID), 0, header, data)
	return err
}

// remove removes an entry. Gateways refuse it from then on. Removing an absent one is
// harmless.
func (s *Store) remove(ctx context.Context, kind, id string) error {
	_, err := s.messages.Publish(ctx, &nats.Msg{Subject: subjectOf(kind, id), Header: nats.Header{headerOperation: {"DEL"}, headerTTL: {seconds(markerFor)}}})
	return err
}

// RevokeToken removes a token and with it the page sessions that began with it. It returns
// session.ErrNotFound if there is no such token.
func (s *Store) RevokeToken(ctx context.Context, id string) error {
	if len(id) != idBytes || !plain(id) {
		return fmt.Errorf("token %q: %w: name the id that `rath token ls` lists", id, session.ErrNotFound)
	}
	m, err := s.messages.LeaderLast(ctx, bucket, subjectOf(kindToken, id))
	if errors.Is(err, conn.ErrNoMessage) || err == nil && m.Header.Get(headerOperation) != "" {
		return fmt.Errorf("token %s: %w: `rath token ls` lists the tokens", id, session.ErrNotFound)
	}
	if err == nil {
		err = s.remove(ctx, kindToken, id)
	}
	if err != nil {
		return fmt.Errorf("access: revoke token %s: %w", id, err)
	}
	return nil
}

// Tokens returns the tokens of a tenant, or of all tenants for "", oldest first, without
// their hashes.
func (s *Store) Tokens(ctx context.Context, t session.Tenant) ([]Entry, error) {
	var all []Entry
	for m, err := range s.streams.Values(ctx, messages.BucketAccess, kindToken+".*") {
		if err != nil {
			return nil, fmt.Errorf("access: list the tokens: %w", conn.StreamError(err))
		}
		e, err := parseEntry(&m)
		if err != nil {
			return nil, err
		}
		if e.Hash = ""; (t == "" || e.Tenant == t) && !e.expired(time.Now()) {
			all = append(all, *e)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return int(a.Created - b.Created) })
	return all, nil
}

// parseEntry reads a stored entry. The subject decides its kind and its id.
func parseEntry(m *conn.Message) (*Entry, error) {
	kind, id, _ := strings.Cut(strings.TrimPrefix(m.Subject, streams.KeySubject(messages.BucketAccess, "")), ".")
	e := &Entry{}
	if len(m.Data) > maxEntry {
		return nil, fmt.Errorf("access: entry %s: %d bytes, at most %d are read", m.Subject, len(m.Data), maxEntry)
	}
	if err := json.Unmarshal(m.Data, e); err != nil {
		return nil, fmt.Errorf("access: entry %s: %w", m.Subject, err)
	}
	e.kind, e.ID = kind, id
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("access: entry %s: %w", m.Subject, err)
	}
	return e, nil
}

func subjectOf(kind, id string) string { return streams.KeySubject(messages.BucketAccess, kind+"."+id) }

// seconds writes a duration as servers read it.
func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second)+1, 10) + "s" }
