package access_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/session"
)

// TestTokens makes, lists and revokes tokens. No list and no message of the bucket has a
// secret.
func TestTokens(t *testing.T) {
	w := newWorld(t)
	text, id := w.token(t, access.Entry{User: "ci", Role: permission.RoleSubmit, Only: []string{"review"}, Expires: time.Now().Add(time.Hour).UnixMilli()})
	w.token(t, access.Entry{Tenant: "acme"})
	all, err := w.operator.Tokens(t.Context(), "default")
	if err != nil || len(all) != 1 || all[0].ID != id || all[0].User != "ci" || all[0].Hash != "" || len(all[0].Only) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := w.operator.Tokens(t.Context(), ""); err != nil || len(all) != 2 {
		t.Errorf("of all tenants: %+v, %v", all, err)
	}
	if !strings.HasPrefix(text, "rath_"+id+"_") || len(text) < 64 {
		t.Errorf("the token is %q", text)
	}
	if err := w.operator.RevokeToken(t.Context(), id); err != nil {
		t.Error(err)
	}
	for _, id := range []string{id, "aaaaaaaaaaaa", "*", ">", ""} {
		if err := w.operator.RevokeToken(t.Context(), id); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("revoke %q: %v", id, err)
		}
	}
	for name, e := range map[string]access.Entry{
		"the operator's name": {User: "operator"}, "anonymous": {User: "anonymous"}, "session": {User: "session"}, "a NATS user": {User: "gateway"},
		"a NATS user of the tenant": {User: "client-default"}, "a dot": {User: "a.b"}, "long": {User: strings.Repeat("a", 65)}, "empty": {},
		"an operator": {User: "ana", Role: permission.RoleOperator}, "a node": {User: "ana", Role: permission.RoleNode}, "a tool": {User: "ana", Role: permission.RoleTool},
		"a gateway": {User: "ana", Role: permission.RoleGateway}, "narrow and wide": {User: "ana", Role: permission.RoleClient, Only: []string{"x"}},
		"expired": {User: "ana", Role: permission.RoleClient, Expires: 1}, "another tenant's form": {User: "ana", Role: permission.RoleClient, Tenant: "a.b"},
	} {
		if e.Tenant == "" {
			e.Tenant = "default"
		}
		if e.Role == "" {
			e.Role = permission.RoleClient
		}
		if text, err := w.operator.CreateToken(t.Context(), &e); err == nil {
			t.Errorf("%s: a token was made: %q", name, text)
		}
	}
}

// TestWhoReads opens the tokens as each NATS user that must not.
func TestWhoReads(t *testing.T) {
	w := newWorld(t)
	_, id := w.token(t, access.Entry{})
	user, password := w.srv.Node()
	node := w.store(t, user, password)
	if all, err := node.Tokens(t.Context(), ""); err == nil || len(all) > 0 {
		t.Errorf("a node reads %v, %v", all, err)
	}
	if _, err := node.CreateToken(t.Context(), &access.Entry{Tenant: "default", User: "eve", Role: permission.RoleClient}); !errors.Is(err, conn.ErrDenied) {
		t.Errorf("a node makes a token: %v", err)
	}
	if err := node.RevokeToken(t.Context(), id); !errors.Is(err, conn.ErrDenied) {
		t.Errorf("a node revokes a token: %v", err)
	}
	user, password = w.srv.Router()
	router := w.store(t, user, password)
	if all, err := router.Tokens(t.Context(), ""); err != nil || len(all) != 1 {
		t.Errorf("a router reads %v, %v", all, err)
	}
	if _, err := router.CreateToken(t.Context(), &access.Entry{Tenant: "default", User: "eve", Role: permission.RoleClient}); !errors.Is(err, conn.ErrDenied) {
		t.Errorf("a router makes a token: %v", err)
	}
	if err := router.RevokeToken(t.Context(), id); !errors.Is(err, conn.ErrDenied) {
		t.Errorf("a router revokes a token: %v", err)
	}
}

// inBubble calls play with a token in fake time, and with a function that waits until a
// gateway answers its bearer with a status, and returns how long that took.
func inBubble(t *testing.T, play func(t *testing.T, w *world, id string, until func(status int) time.Duration)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		handler, stop := w.handler(t, "http://127.0.0.1:7280", nil)
		defer stop()
		token, id := w.token(t, access.Entry{})
		play(t, w, id, func(want int) time.Duration {
			for began := time.Now(); ; time.Sleep(250 * time.Millisecond) {
				r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7280/api/v1/x", nil)
				r.Header.Set("Authorization", "Bearer "+token)
				rec := httptest.NewRecorder()
				handler.ServeHTTP(rec, r)
				took := time.Since(began)
				if rec.Code == want {
					return took
				}
				if took > 40*time.Second {
					t.Fatalf("%d, want %d", rec.Code, want)
				}
			}
		})
	})
}

// TestStale cuts a gateway off from the servers: after a while it answers 503 instead of
// accepting tokens that may be revoked.
func TestStale(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ string, until func(int) time.Duration) {
		until(200)
		w.wire.Set(func([]byte) bool { return false }, func([]byte) bool { return false })
		if took := until(503); took < 5*time.Second || took > 30*time.Second {
			t.Errorf("503 after %v", took)
		}
		w.wire.Set(nil, nil)
		until(200)
	})
}

// TestRevokedSoon: a gateway refuses a token at most two seconds after its revocation.
func TestRevokedSoon(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, id string, until func(int) time.Duration) {
		until(200)
		must.Do(t, w.operator.RevokeToken(t.Context(), id))
		if took := until(401); took > 2*time.Second {
			t.Errorf("refused after %v", took)
		}
	})
}
