package conn

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/session"
)

// A server notifies a client that it lacks a permission, but not which of its requests
// fails for it: that request goes unanswered. This file matches the two.

// Permission is an entry of PermissionError.Missing.
type Permission = permission.Permission

// PermissionError lists the permissions that credentials lack. errors.Is(err, ErrDenied)
// holds.
type PermissionError struct {
	// Role is the role the credentials were checked for; "" for a server's rejection.
	Role permission.Role
	// Roles are the roles that have the rejected permission.
	Roles []permission.Role
	// Missing are the missing permissions.
	Missing []Permission
	// Subject is the subject that a server rejected, with a single Missing.
	Subject string
	// User and Account belong to the credentials, if the server returned them.
	User, Account string
	// Tenants are the tenants of the credentials, if Subject belongs to another one.
	Tenants []session.Tenant
}

// Error names each permission and the remedy.
func (e *PermissionError) Error() string {
	if e.Subject != "" {
		p := e.Missing[0]
		text := fmt.Sprintf("%v: no permission to %s to %s", ErrDenied, p.Op, e.Subject)
		if p.Subject != e.Subject {
			text += " (" + p.Subject + ")"
		}
		if of := permission.TenantsOf([]string{e.Subject}); len(e.Tenants) > 0 && len(of) > 0 {
			return fmt.Sprintf("%s: these credentials belong to tenant %[3]s: act for it (--tenant %[3]s), or use credentials of tenant %[2]s", text, of[0], e.Tenants[0])
		}
		if len(e.Roles) == 0 {
			return text + ": grant it to this user; `rath cluster provision --print-permissions` lists the permissions of each role"
		}
		names := make([]string, len(e.Roles))
		for i, r := range e.Roles {
			names[i] = string(r)
		}
		return fmt.Sprintf("%s: this needs the role %s: use its credentials, or grant this user the permissions of `rath cluster provision --print-permissions --role %s`",
			text, strings.Join(names, " or "), names[0])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v: these credentials%s lack permissions that the role %s needs", ErrDenied, e.who(), e.Role)
	for _, p := range e.Missing {
		fmt.Fprintf(&b, "\n\t%s: %s", p, p.Why)
	}
	fmt.Fprintf(&b, "\n\tgive them to the user; `rath cluster provision --print-permissions --role %s` prints all of them", e.Role)
	return b.String()
}

func (e *PermissionError) who() string {
	if e.User == "" {
		return ""
	}
	return fmt.Sprintf(" (user %s, account %s)", e.User, e.Account)
}

// Is reports whether target is ErrDenied.
func (e *PermissionError) Is(target error) bool { return target == ErrDenied }

// causeOf adds the cause to a rejection: whether the subject belongs to another tenant than
// these credentials, for which it asks the server once. Without a connection it returns
// unconnected.
func (c *Conn) causeOf(ctx context.Context, err error) error {
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return unconnected{err}
	}
	e, ok := errors.AsType[*PermissionError](err)
	if !ok || e.Subject == "" {
		return err
	}
	of := permission.TenantsOf([]string{e.Subject})
	if len(of) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	info, asked := c.info(ctx)
	if asked != nil || info == nil || info.Data.Permissions == nil {
		return err // the server does not state the reason
	}
	own := permission.TenantsOf(info.Data.Permissions.Publish.Allow)
	if len(own) == 0 || slices.Contains(own, of[0]) {
		return err
	}
	known := *e
	known.Tenants = own
	return &known
}

// violation matches a server's rejection.
var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription)(?: with reply of| to) "([^"]+)"`)

// violated returns the rejection in an error of the connection; nil for another error.
func violated(err error) *PermissionError {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	m := violation.FindStringSubmatch(err.Error())
	if m == nil {
		return nil
	}
	op := permission.OpPublish
	if strings.EqualFold(m[1], "subscription") {
		op = permission.OpSubscribe
	}
	p, roles := permission.Needed(op, m[2])
	return &PermissionError{Subject: m[2], Missing: []Permission{p}, Roles: roles}
}
