package streams

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
)

// Mismatch is one setting of a stream that differs from this release's.
type Mismatch struct {
	Stream string
	Field  string
	Want   string
	Got    string
	Remedy string
}

// MismatchError lists the mismatches that Provision or Verify found. Nothing was altered.
type MismatchError struct{ Mismatches []Mismatch }

// Error has one line per mismatch.
func (e *MismatchError) Error() string {
	lines := make([]string, 0, 1+len(e.Mismatches))
	lines = append(lines, "nats/streams: streams are not set up as this release needs them")
	for _, m := range e.Mismatches {
		lines = append(lines, fmt.Sprintf("stream %s: %s is %s, want %s; %s", m.Stream, m.Field, m.Got, m.Want, m.Remedy))
	}
	return strings.Join(lines, "\n\t")
}

// Provision creates the missing streams, buckets and consumers, checks the existing ones
// and alters no stream. It returns a *MismatchError for settings that differ, and for
// missing objects that these credentials may not create. Nodes may call it concurrently and
// repeatedly. Operators use Plan and Apply.
func (c *Streams) Provision(ctx context.Context) error { return c.setUp(ctx, true) }

// Verify is like Provision but creates nothing: everything missing is a mismatch.
func (c *Streams) Verify(ctx context.Context) error { return c.setUp(ctx, false) }

func (c *Streams) setUp(ctx context.Context, make bool) error {
	if c.O.Client {
		return ErrClientOnly
	}
	e := Lookup{Election: conn.Election{Log: c.Conn.Logger}}
	all, err := c.changes(ctx, &c.O, &e, nil)
	if err != nil {
		return err
	}
	if make {
		if err := c.makeMissing(ctx, &e, all); err != nil {
			return err
		}
	}
	if found := c.O.mismatches(all); len(found) > 0 {
		return &MismatchError{found}
	}
	return nil
}

// makeMissing creates the missing objects, until the server rejects these credentials.
func (c *Streams) makeMissing(ctx context.Context, e *Lookup, all []Change) error {
	denied := map[bool]*conn.PermissionError{} // for consumers, and for streams
	absent := map[string]bool{}
	for i := range all {
		ch := &all[i]
		of := ch.Kind == KindConsumer
		if ch.Action != Create && (!of || ch.Action != Update) || of && absent[ch.queue.Stream] {
			continue
		}
		if ch.denied = denied[of]; ch.denied != nil {
			absent[ch.config().Name] = true
			continue
		}
		err := c.carryOut(ctx, e, ch)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			// Another node was faster, with other settings.
			var info *jetstream.StreamInfo
			if info, _, err = c.Reconciler.findStream(ctx, e, *ch.want); err == nil && info != nil {
				ch.found(&info.Config)
				ch.decide()
				continue
			}
		}
		if e, ok := errors.AsType[*conn.PermissionError](err); ok {
			ch.denied, denied[of], absent[ch.config().Name] = e, e, true
			continue
		}
		if err != nil {
			return c.O.provisionError(ch.config(), err)
		}
		ch.Done = true
	}
	return nil
}

// mismatches lists the changes that are not done.
func (o *Options) mismatches(all []Change) []Mismatch {
	var out []Mismatch
	missing := map[string]bool{}
	for _, ch := range all {
		stream, field := ch.queue.Stream, "consumer "+ch.queue.Durable
		if ch.want != nil {
			stream, field = ch.want.Name, "stream"
		}
		switch {
		case ch.Done, ch.Kind == KindConsumer && missing[stream]:
			continue
		case ch.Action == Create:
			missing[stream] = missing[stream] || ch.want != nil
			remedy := o.provision()
			if ch.denied != nil {
				remedy = "these credentials may not make it: " + remedy
			}
			out = append(out, Mismatch{stream, field, "present", "missing", remedy})
		}
		if ch.Action == Create {
			continue
		}
		for _, d := range ch.Differences {
			name := d.Setting
			if ch.Kind == KindConsumer {
				name = field + ": " + name
			}
			remedy := d.Refused
			if remedy == "" {
				remedy = o.provision()
			}
			if !d.lax {
				out = append(out, Mismatch{stream, name, d.Want, d.Have, remedy})
			}
		}
	}
	return out
}

// provision returns the command with which an operator makes everything that nodes with
// these options need.
func (o *Options) provision() string {
	return fmt.Sprintf("as operator run: rath cluster provision --replicas %d", o.Replicas)
}

// The server's error codes for a stream that asks for more than is left.
const (
	codeInsufficient    = 10023
	codeMemoryExceeded  = 10028
	codeStorageExceeded = 10047
	codeNoPeers         = 10005
	codeReplicasSingle  = 10074
)

func (o *Options) provisionError(want jetstream.StreamConfig, err error) error {
	remedy := ""
	switch conn.APICode(err) {
	case codeInsufficient, codeMemoryExceeded, codeStorageExceeded:
		return fmt.Errorf("nats/streams: no space for stream %s: %w; it needs %s of the %s shared by all streams: "+
			"free some space, raise the servers' limit or use another disk: %w", want.Name, err, bytesText(want.MaxBytes), bytesText(o.StoreBytes), conn.ErrFull)
	case codeNoPeers, codeReplicasSingle:
		remedy = fmt.Sprintf("; %d replicas need as many servers in one cluster", want.Replicas)
	default:
		switch {
		case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
			remedy = "; switch JetStream on in the servers and for this account"
		case errors.Is(err, context.DeadlineExceeded):
			remedy = "; the servers did not answer: check that JetStream is on and that these credentials may use its API"
		}
	}
	return fmt.Errorf("nats/streams: stream %s: %w%s", want.Name, err, remedy)
}
