package api

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// importing answers requests to import by take, and the other requests of clients.
func importing(t *testing.T, take TakeOver, test func(t *testing.T, c *Conn)) {
	t.Helper()
	layer.InBubble(t, func(t *testing.T, c *Conn, _ *natstest.Wire) {
		queries := must.Get(c.ServeQueries(t.Context(), &Queries{Values: journal.NewValues(c.Logs.Log())}))(t)
		control := must.Get(c.ServeControl(t.Context(), func(context.Context, journal.Signal) error { return nil }, take, nil))(t)
		test(t, c)
		must.Report(t, errors.Join(queries.Stop(), control.Stop()))
	})
}

// TestImportGoesOn: the client repeats an import that takes longer than one request until
// it is done, and also an import that a node no longer answers.
func TestImportGoesOn(t *testing.T) {
	file := bytes.Repeat([]byte("0123456789abcdef"), 100<<10) // of several parts
	calls := 0
	var died bool
	take := func(ctx context.Context, tenant session.Tenant, user string, got []byte) ([]messages.Imported, error) {
		if tenant != "acme" || user != "node" || !bytes.Equal(got, file) {
			t.Errorf("%s of %s imports %d bytes", user, tenant, len(got))
		}
		switch calls++; calls {
		case 1, 2: // works as long as it may
			<-ctx.Done()
			return nil, context.Cause(ctx)
		case 3:
			return nil, run.ErrBusy
		case 4: // its node stops
			died = true
			return nil, session.ErrUnavailable
		}
		return []messages.Imported{{Session: "s1", Rows: 2}}, nil
	}
	importing(t, take, func(t *testing.T, c *Conn) {
		began := time.Now()
		rows, err := c.Requests.Import(t.Context(), "acme", file)
		if err != nil || calls != 5 || !died || !slices.Equal(rows, []messages.Imported{{Session: "s1", Rows: 2}}) {
			t.Errorf("%d calls: %+v, %v", calls, rows, err)
		}
		if took := time.Since(began); took < 2*importFor || took > 2*importFor+requests.ImportPatience {
			t.Errorf("it took %v", took)
		}
	})
}

// TestImportIsGivenUp: an import that no node finishes ends, with the reason.
func TestImportIsGivenUp(t *testing.T) {
	calls := 0
	take := func(context.Context, session.Tenant, string, []byte) ([]messages.Imported, error) {
		calls++
		return nil, session.ErrUnavailable
	}
	importing(t, take, func(t *testing.T, c *Conn) {
		began := time.Now()
		if _, err := c.Requests.Import(t.Context(), "acme", []byte("x")); !errors.Is(err, session.ErrUnavailable) || calls < 3 {
			t.Errorf("%d calls, %v", calls, err)
		}
		if took := time.Since(began); took < requests.ImportPatience || took > 2*requests.ImportPatience {
			t.Errorf("it took %v", took)
		}
	})
}

// TestBadImports are rejected before anything is imported.
func TestBadImports(t *testing.T) {
	take := func(context.Context, session.Tenant, string, []byte) ([]messages.Imported, error) {
		t.Error("it is taken over")
		return nil, nil
	}
	importing(t, take, func(t *testing.T, c *Conn) {
		digest := blob.Sum([]byte("absent"))
		large := must.Get(c.Requests.RemoteBlobs("acme").Put(t.Context(), bytes.NewReader(make([]byte, wire.MaxImport+1))))(t)
		for name, tt := range map[string]struct {
			subject string
			want    error
		}{
			"a blob that is not there":   {messages.ImportSubject("acme", "anonymous", digest), session.ErrNotFound},
			"a blob of another tenant":   {messages.ImportSubject("other", "anonymous", large.Digest), session.ErrNotFound},
			"a file that is too large":   {messages.ImportSubject("acme", "anonymous", large.Digest), session.ErrTooLarge},
			"a digest in capitals":       {"rath.ctl.acme.anonymous.archive." + strings.ToUpper(digest.String()) + ".import", run.ErrMalformed},
			"a digest that is too short": {"rath.ctl.acme.anonymous.archive.abc.import", run.ErrMalformed},
			"another verb":               {"rath.ctl.acme.anonymous.archive." + digest.String() + ".export", run.ErrMalformed},
		} {
			data, err := c.Conn.Ask(t.Context(), tt.subject, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			a, err := messages.Decode[wire.ImportAnswer]("answer", data)
			if err == nil {
				err = a.Err()
			}
			if !errors.Is(err, tt.want) || a.Done {
				t.Errorf("%s: %v, want %v", name, err, tt.want)
			}
		}
		if _, err := c.Requests.Import(t.Context(), "acme", make([]byte, wire.MaxImport+1)); !errors.Is(err, session.ErrTooLarge) {
			t.Errorf("a file that is too large: %v", err)
		}
	})
}

// TestImportOneAtATime: a node that imports answers that it is busy.
func TestImportOneAtATime(t *testing.T) {
	hold, held := make(chan struct{}), make(chan struct{})
	take := func(context.Context, session.Tenant, string, []byte) ([]messages.Imported, error) {
		close(held)
		<-hold
		return nil, nil
	}
	importing(t, take, func(t *testing.T, c *Conn) {
		var d [2]blob.Digest
		for i := range d {
			ref := must.Get(c.Requests.RemoteBlobs("acme").Put(t.Context(), bytes.NewReader([]byte{byte(i)})))(t)
			d[i] = ref.Digest
		}
		first := make(chan error, 1)
		go func() {
			_, err := c.Conn.Ask(t.Context(), messages.ImportSubject("acme", "anonymous", d[0]), nil)
			first <- err
		}()
		<-held
		data, err := c.Conn.Ask(t.Context(), messages.ImportSubject("acme", "anonymous", d[1]), nil)
		if err != nil || !strings.Contains(string(data), `"busy"`) {
			t.Errorf("%s, %v", data, err)
		}
		close(hold)
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// TestPutMissing: of a file that was cut off only the missing parts are sent again.
func TestPutMissing(t *testing.T) {
	served(t, func(t *testing.T, c *Conn) {
		file := random(3*wire.MaxBlobPart + 7)
		second := file[wire.MaxBlobPart : 2*wire.MaxBlobPart]
		must.Get(c.Requests.RemoteBlobs("acme").Put(t.Context(), bytes.NewReader(second)))(t)
		before := c.Conn.NC.Stats().OutBytes
		d, err := c.Requests.TenantBlobs("acme").PutMissing(t.Context(), file)
		if err != nil || d != blob.Sum(file) {
			t.Fatalf("%s, %v", d.Short(), err)
		}
		if got, err := read(t.Context(), c.Logs.Blobs("acme"), d); err != nil || !bytes.Equal(got, file) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		// The connection is the node's as well: each byte is sent twice, in base64 once.
		sent := c.Conn.NC.Stats().OutBytes
		must.Get(c.Requests.TenantBlobs("acme").PutMissing(t.Context(), file))(t)
		if again := c.Conn.NC.Stats().OutBytes - sent; again > wire.MaxBlobPart/4 || sent-before < 2*wire.MaxBlobPart {
			t.Errorf("%d bytes were sent first, %d again", sent-before, again)
		}
	})
}
