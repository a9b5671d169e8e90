package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/session"
)

// Plan is the list of changes that provisioning would make. It is valid for the state of
// the streams at the time it was made.
type Plan struct {
	Generation uint32   `json:"generation"`
	Partitions uint32   `json:"partitions"`
	Replicas   int      `json:"replicas"`
	Changes    []Change `json:"changes"`

	o Options
}

// Pending returns the changes that remain to be made.
func (p *Plan) Pending() []Change {
	return slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool { return c.Action == Keep || c.Done })
}

// Provisioning is the wanted configuration of streams, buckets and consumers. The zero
// value keeps the operator's earlier choices.
type Provisioning struct {
	// Partitions is the number of event streams of a new generation; 0 is
	// DefaultPartitions. For an existing generation it has to equal the current number.
	Partitions uint32
	// Replicas of each stream; 0 keeps the current number, which is 3 in a new
	// installation.
	Replicas int
	// StoreBytes is shared among all streams, on each server that holds replicas of all. 0
	// keeps the size of existing streams and sizes new ones for DefaultStoreBytes.
	StoreBytes int64
	// KeepResults is how long stored results are kept; 0 leaves the setting unchanged, and
	// in a new installation keeps results while there is room.
	KeepResults time.Duration
	// Cluster and Tags restrict the servers on which streams may lie; empty leaves the
	// setting unchanged.
	Cluster string
	Tags    []string
	// FewerReplicas agrees to lower the number of replicas.
	FewerReplicas bool
}

// RouterPool is the default pool of routers.
const RouterPool = "router"

// newReplicas is the default number of replicas of a new installation.
const newReplicas = 3

// Plan compares the existing streams, buckets and consumers with the wanted ones, and
// changes nothing. It needs the rights of an operator; otherwise Options.Client is enough.
func (c *Streams) Plan(ctx context.Context, p *Provisioning) (*Plan, error) {
	if p == nil {
		p = &Provisioning{}
	}
	o := c.O
	o.Partitions, o.Replicas, o.StoreBytes, o.KeepResults = p.Partitions, p.Replicas, p.StoreBytes, p.KeepResults
	e := Lookup{Election: conn.Election{Log: c.Conn.Logger}}
	events := jetstream.StreamConfig{Name: EventStream(o.Generation, 0)}
	first, _, err := c.Reconciler.findStream(ctx, &e, events)
	if err != nil {
		return nil, o.provisionError(events, err)
	}
	if first != nil {
		if err := c.follows(ctx, &o, &first.Config); err != nil {
			return nil, err
		}
	}
	if o.Replicas == 0 {
		o.Replicas = newReplicas
	}
	if o.Partitions == 0 {
		o.Partitions = DefaultPartitions
	}
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	changes, err := c.changes(ctx, &o, &e, func(ch *Change, state jetstream.StreamState) { p.choose(ch, state) })
	if err != nil {
		return nil, err
	}
	return &Plan{Generation: o.Generation, Partitions: o.Partitions, Replicas: o.Replicas, Changes: changes, o: o}, nil
}

// follows copies fixed and chosen settings from the first event stream of a generation that
// exists.
func (c *Streams) follows(ctx context.Context, o *Options, first *jetstream.StreamConfig) error {
	have, err := PartitionsOf(first)
	if err == nil && have == 0 {
		have, err = c.countPartitions(ctx, o.Generation)
	}
	if err != nil {
		return err
	}
	if o.Partitions != 0 && o.Partitions != have {
		unit := "partitions"
		if have == 1 {
			unit = "partition"
		}
		return fmt.Errorf("nats/streams: generation %d has %d %s, not %d: %w: the ids of sessions name their partition, so that their number "+
			"is fixed for a generation; ask for %d", o.Generation, have, unit, o.Partitions, ErrRefused, have)
	}
	o.Partitions = have
	if o.Replicas == 0 {
		o.Replicas = first.Replicas
	}
	return nil
}

// PartitionsOf reads the number of partitions of the generation of an event stream; 0 if a
// build that did not record the number made it.
func PartitionsOf(first *jetstream.StreamConfig) (uint32, error) {
	text := first.Metadata[metaPartitions]
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 || n > maxPartitions {
		return 0, fmt.Errorf("nats/streams: stream %s: metadata %s is %q, want a number from 1 to %d", first.Name, metaPartitions, text, maxPartitions)
	}
	return uint32(n), nil
}

// countPartitions counts the event streams of a generation.
func (c *Streams) countPartitions(ctx context.Context, generation uint32) (uint32, error) {
	all, err := c.EventStreams(ctx)
	if err != nil {
		return 0, err
	}
	n := uint32(0)
	for slices.Contains(all, EventStream(generation, n)) {
		n++
	}
	return n, nil
}

// ErrRefused is returned for a change that would lose or hide data. No change was made.
var ErrRefused = errors.New("refused")

// choose adds the settings reserved to an operator to a change, and rejects those that
// would lose data.
func (p *Provisioning) choose(ch *Change, state jetstream.StreamState) {
	want := ch.want
	if p.Cluster != "" || len(p.Tags) > 0 {
		want.Placement = &jetstream.Placement{Cluster: p.Cluster, Tags: p.Tags}
	}
	if ch.have == nil {
		return
	}
	differ := func(name, have, want string, take func(dst, src *jetstream.StreamConfig)) *Difference {
		if have == want {
			return &Difference{}
		}
		ch.Differences = append(ch.Differences, Difference{Setting: name, Have: have, Want: want, take: take})
		return &ch.Differences[len(ch.Differences)-1]
	}
	if want.Placement != nil {
		differ("placement", placed(ch.have.Placement), placed(want.Placement), func(dst, src *jetstream.StreamConfig) { dst.Placement = src.Placement })
	}
	if p.StoreBytes > 0 && ch.have.MaxBytes > 0 {
		d := differ("max bytes", bytesText(ch.have.MaxBytes), bytesText(want.MaxBytes), func(dst, src *jetstream.StreamConfig) { dst.MaxBytes = src.MaxBytes })
		if uint64(want.MaxBytes) < state.Bytes && want.Name != StreamSnap { // a cache
			d.Refused = fmt.Sprintf("it holds %s: ask for more, or archive and purge first", bytesText(int64(state.Bytes)))
		}
	}
	if p.KeepResults > 0 && want.Name == StreamResult {
		differ("max age", ch.have.MaxAge.String(), want.MaxAge.String(), func(dst, src *jetstream.StreamConfig) { dst.MaxAge = src.MaxAge })
	}
	for i := range ch.Differences {
		d := &ch.Differences[i]
		if d.Setting == "replicas" && want.Replicas < ch.have.Replicas && !p.FewerReplicas {
			d.Refused = fmt.Sprintf("acknowledged commits would survive the loss of fewer servers: agree to that to have it, or ask for %d replicas", ch.have.Replicas)
		}
	}
}

func placed(p *jetstream.Placement) string {
	if p == nil || p.Cluster == "" && len(p.Tags) == 0 {
		return "anywhere"
	}
	text := strings.Join(p.Tags, ",")
	if p.Cluster != "" {
		text = strings.TrimSuffix("cluster "+p.Cluster+" "+text, " ")
	}
	return text
}

// bytesText writes a number of bytes for people.
func bytesText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d B", n)
}

// Refused returns a *RefusedError if any change in the plan is refused.
func (p *Plan) Refused() error {
	if slices.ContainsFunc(p.Changes, func(ch Change) bool { return ch.Action == Refuse }) {
		return &RefusedError{p}
	}
	return nil
}

// Apply carries out a plan. If any change in the plan is refused, Apply changes nothing and
// returns a *RefusedError with the refused changes. After a failure in the middle the
// completed changes are marked Done, and a new plan continues from there.
func (c *Streams) Apply(ctx context.Context, p *Plan) error {
	if err := p.Refused(); err != nil {
		return err
	}
	e := Lookup{Election: conn.Election{Log: c.Conn.Logger}}
	for i := range p.Changes {
		if ch := &p.Changes[i]; !ch.Done {
			if err := c.carryOut(ctx, &e, ch); err != nil {
				return p.o.provisionError(ch.config(), err)
			}
			ch.Done = true
		}
	}
	return nil
}

// RefusedError lists the refused changes of a plan. errors.Is(err, ErrRefused) holds.
type RefusedError struct{ Plan *Plan }

// Error has a line for each refused difference.
func (e *RefusedError) Error() string {
	lines := []string{"nats/streams: no stream was changed: " + ErrRefused.Error()}
	for _, ch := range e.Plan.Changes {
		for _, d := range ch.Differences {
			if d.Refused != "" {
				lines = append(lines, fmt.Sprintf("%s %s: %s is %s, not %s: %s", ch.Kind, ch.Name, d.Setting, d.Have, d.Want, d.Refused))
			}
		}
	}
	return strings.Join(lines, "\n\t")
}

// Is reports whether target is ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// EventStreams returns the names of all event streams, oldest generation first.
func (c *Streams) EventStreams(ctx context.Context) ([]string, error) {
	type place struct{ generation, partition uint64 }
	found := map[string]place{}
	_, err := conn.CallWithin(ctx, c.Conn, conn.APIStreamNames, askStream, func(ctx context.Context) (struct{}, error) {
		names := c.Conn.JS.StreamNames(ctx, jetstream.WithStreamListSubject(PrefixEvent+">"))
		for name := range names.Name() {
			g, p, ok := strings.Cut(strings.TrimPrefix(name, "EV_"), "_")
			gn, errG := strconv.ParseUint(g, 10, 32)
			pn, errP := strconv.ParseUint(p, 10, 32)
			if ok && errG == nil && errP == nil {
				found[name] = place{gn, pn}
			}
		}
		return struct{}{}, names.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("nats/streams: list the event streams: %w; reading them needs the rights of an operator", err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("nats/streams: %s has no event streams: %w", c.Conn.Servers(), session.ErrNotFound)
	}
	list := make([]string, 0, len(found))
	for name := range found {
		list = append(list, name)
	}
	slices.SortFunc(list, func(a, b string) int {
		x, y := found[a], found[b]
		return cmp.Or(cmp.Compare(x.generation, y.generation), cmp.Compare(x.partition, y.partition))
	})
	return list, nil
}
