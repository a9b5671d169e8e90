package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The doors through which requests come.
const (
	// DoorAPI is a request with a bearer token.
	DoorAPI = "api"
	// DoorPage is a request with the cookie of a page session.
	DoorPage = "page"
)

// VerbSubmit is the verb of submitting a task; the others are those of package messages.
const VerbSubmit = permission.VerbSubmit

// A Caller is who makes a request: a user of a tenant with a role. Its fields do not
// change.
type Caller struct {
	Tenant session.Tenant
	User   string
	Role   permission.Role // observe, submit, approve, operate or client
	Door   string          // DoorAPI or DoorPage
	Token  string          // the id of the token or of the page session, never its secret
	// Only are the workflows that a narrow token may submit; nil is a token without that
	// limit. A narrow token sees only the runs that its user submitted to them.
	Only    []string
	Expires time.Time // zero: never
	// Says is the identity that an identity provider stated, such as an e-mail address. It
	// is no proof: requests carry it as the user's own claim, messages.Control.By.
	Says string
	// Client acts as User in Tenant. Its Close does nothing.
	Client *client.Client

	ended <-chan struct{}
	form  string // the token of the forms of a page session
}

// EndsWith returns a copy of the caller whose access ends when the channel is closed.
func (c *Caller) EndsWith(ended <-chan struct{}) *Caller {
	copied := *c
	copied.ended = ended
	return &copied
}

// Ended is closed when the token or the page session is revoked or has expired, and when
// its user has logged out: streams end then. It is nil for access without an end.
func (c *Caller) Ended() <-chan struct{} { return c.ended }

type key struct{}

// With returns a context that carries the caller of a request.
func With(ctx context.Context, c *Caller) context.Context { return context.WithValue(ctx, key{}, c) }

// From returns the caller of an authenticated request. It panics for the context of
// another request.
func From(ctx context.Context) *Caller {
	c, ok := ctx.Value(key{}).(*Caller)
	if !ok {
		panic("access: the request was not authenticated")
	}
	return c
}

// Denied is the error of a verb that the caller's role does not include.
type Denied struct {
	Verb  string            // of package messages, or VerbSubmit
	Roles []permission.Role // those that include the verb; none for a verb of no user
	Role  permission.Role   // the caller's
}

// Error names the verb, the roles that include it, and the caller's role.
func (d *Denied) Error() string {
	if len(d.Roles) == 0 {
		return fmt.Sprintf("access: %s: no role of a tenant's users includes it", d.Verb)
	}
	names := make([]string, len(d.Roles))
	for i, r := range d.Roles {
		names[i] = string(r)
	}
	return fmt.Sprintf("access: %s: that takes the role %s, and this access has the role %s; ask the operator for it (`rath token create --role %s`)",
		d.Verb, strings.Join(names, " or "), d.Role, names[0])
}

// Is reports whether target is client.ErrDenied.
func (d *Denied) Is(target error) bool { return target == client.ErrDenied }

// May returns nil if the caller's role includes a verb of package messages, or VerbSubmit,
// and otherwise a *Denied. Every role reads: reading is no verb.
func (c *Caller) May(verb string) error {
	roles := permission.RolesFor(verb)
	if slices.Contains(roles, c.Role) {
		return nil
	}
	return &Denied{Verb: verb, Roles: roles, Role: c.Role}
}

// Narrow reports whether the caller has a narrow token.
func (c *Caller) Narrow() bool { return c.Only != nil }

// Sees returns run.ErrUnknownRun for a run that a narrow token must not see, as for a run
// that does not exist. For a token without that limit it returns nil and reads nothing: the
// tenant's subjects separate the tenants.
func (c *Caller) Sees(ctx context.Context, id run.ID) error {
	if !c.Narrow() {
		return nil
	}
	r, err := c.Client.Runs.Get(ctx, id)
	if err != nil {
		return err
	}
	own, err := c.Owns(ctx, &r)
	if err == nil && !own {
		err = fmt.Errorf("run %s: %w", id, run.ErrUnknownRun)
	}
	return err
}

// Owns is Own for a run that may be a branch: a narrow token sees the branches of its runs,
// of any workflow.
func (c *Caller) Owns(ctx context.Context, r *messages.RunInfo) (bool, error) {
	for r.BranchOf != nil && !c.Own(r) && r.By == c.User {
		around, err := c.Client.Runs.Get(ctx, r.BranchOf.Run)
		if err != nil {
			return false, err
		}
		r = &around
	}
	return c.Own(r), nil
}

// Own reports whether a narrow token sees a run: its user submitted it to one of its
// workflows.
func (c *Caller) Own(r *messages.RunInfo) bool {
	return !c.Narrow() || r.By == c.User && slices.Contains(c.Only, r.Workflow)
}
