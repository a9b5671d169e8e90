package start

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/fleet"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/internal/workflows/demo"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox/local"
)

// fleetDemo shows a fan-out over nodes that are processes of their own, and kills one
// of them in the middle of its branch.
type fleetDemo struct {
	*demonstration
	nodes  *fleet.Fleet
	atOnce int // number of branches that run concurrently, one on each node
	id     run.ID

	branches map[run.ID]*fleetBranch // by their runs
	fanned   bool                    // their start was printed
	running  bool                    // their nodes were printed
	victim   *fleet.Member           // the killed node
	killed   time.Time
	ends     []string // outcomes of the branches
	failed   error
}

// fleetBranch is one branch of the fan-out.
type fleetBranch struct {
	name     string
	node     string // incarnation of the last claim
	attempts uint64
	steps    int  // recorded
	asks     bool // its model call about a tool's result is in progress
}

// doomed is the branch whose node is killed, and which is adopted later.
const doomed = "careful"

func (d *demonstration) showFleet(ctx context.Context, count int) (err error) {
	store := d.Config.Store.Value
	boxes, err := filepath.Abs(filepath.Join(store, "boxes"))
	if err != nil {
		return err
	}
	d.box = local.New(&local.Options{State: boxes})
	opening, cancel := context.WithTimeout(ctx, app.OpenTimeout)
	defer cancel()
	s, err := fleet.Host(opening, d.App, -1, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := d.abandon(opening, s); err != nil {
		return err
	}
	root, err := filepath.Abs(filepath.Join(store, "demo"))
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "repo")
	if err := errors.Join(os.RemoveAll(dir), demo.Unpack(dir)); err != nil {
		return fmt.Errorf("demo: unpack the repository: %w", err)
	}
	// One slot per node, so that the branches spread; the script's commands are known,
	// so they may run without confinement.
	c := fleet.Config{Slots: 1, Unsafe: true, Demo: root, Pace: 1}
	if d.Out.Terminal() {
		c.Pace = unhurried
	}
	f, err := fleet.Start(opening, d.App, fleet.Names(count), c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	d.header(ctx, s, dir, true)
	for _, m := range f.Living() {
		d.Out.Println(d.columns("node "+m.Name, fmt.Sprintf("pid %d", m.PID), "log   "+relative(d.App, m.Log)))
	}
	fd := &fleetDemo{demonstration: d, nodes: f, atOnce: min(count, len(demo.Coders)), branches: map[run.ID]*fleetBranch{}}
	return fd.timeline(ctx, s, root)
}

// abandon cancels the open runs of a former demo.
func (d *demonstration) abandon(ctx context.Context, s *app.System) error {
	open, err := s.Runs.List(ctx, &client.RunsOptions{Workflow: demo.FleetName, States: []run.State{run.Queued, run.Running, run.Waiting, run.NeedsReview}})
	if err != nil {
		return err
	}
	for _, r := range open {
		if r.BranchOf != nil {
			continue // ends with the run that opened it
		}
		if err := s.Runs.Cancel(ctx, r.Run, messages.Control{Reason: "another demo begins"}); err != nil && !errors.Is(err, run.ErrState) {
			return err
		}
	}
	return nil
}

func (d *fleetDemo) timeline(ctx context.Context, s *app.System, root string) error {
	body, err := json.Marshal(map[string]any{"dir": filepath.Join(root, "repo")})
	if err != nil {
		return err
	}
	after, err := follow.Newest(ctx, s)
	if err != nil {
		return err
	}
	d.id = client.NewID()
	if _, err := s.Submit(ctx, demo.FleetName, messages.Task{ID: d.id, Input: body}); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	seen, err := follow.Watch(ctx, s, d.id, "", after, follow.Handlers{Record: func(r messages.Record) {
		if d.record(&r); d.failed != nil {
			stop(d.failed)
		}
	}})
	if errors.Is(err, app.ErrInterrupted) {
		d.Err.Println("the nodes end; resume the run with\n  " + d.Hint("resume", string(d.id)))
		return app.Silent(app.ExitInterrupted)
	}
	if err != nil {
		return errors.Join(d.failed, err)
	}
	if seen.Result == nil {
		return follow.Stopped(d.demonstration.App, d.id, seen, &follow.NodeFlags{})
	}
	slices.Sort(d.ends)
	for _, text := range d.ends {
		d.Out.Println(text)
	}
	if d.victim == nil {
		d.Out.Println("no node was killed: the branch was too quick")
	}
	if err := d.compare(ctx, s, seen.Result); err != nil {
		return err
	}
	return d.footer(ctx, s, d.id, seen.Result)
}

// compare prints whether the files are the same as without a kill.
func (d *fleetDemo) compare(ctx context.Context, s *app.System, r *messages.Result) error {
	if r.State != run.Succeeded {
		return nil // the footer reports it
	}
	want, err := demo.FleetResult(ctx)
	if err != nil {
		return err
	}
	v, err := s.Sessions.Get(ctx, fmt.Sprintf("%s:%d", r.Session, r.Version))
	if err != nil {
		return err
	}
	files, err := manifest.Load(ctx, s.Blobs(s.Tenant()), v.Placement.Head)
	if err != nil {
		return err
	}
	if got := files.Digest(); got != want {
		return app.Fail(app.ExitFailed, "demo: the files are %s, without a kill they are %s", got.Short(), want.Short())
	}
	d.say("files", "", "%s, byte for byte as without a killed node", v.Placement.Head.Short())
	return nil
}

// say prints an event, with its subject in the first column.
func (d *fleetDemo) say(subject string, color term.Style, format string, args ...any) {
	text := term.Pad(subject, 11) + " " + fmt.Sprintf(format, args...)
	if color != "" {
		text = d.Out.Paint(color, text)
	}
	d.Out.Println(text)
}

// record handles the records of the run, in order.
func (d *fleetDemo) record(r *messages.Record) {
	b := d.branches[r.Run]
	switch {
	case r.Kind == messages.KindSubmitted && r.BranchOf != nil:
		d.branches[r.Run] = &fleetBranch{name: r.Name}
	case r.Kind == messages.KindFannedOut && r.Run == d.id:
		d.say("fan-out", "", "%s at once, each wherever a node is free", view.Counted(int64(len(demo.Coders)), "branch"))
		d.fanned = true
		d.begun()
	case r.Kind == messages.KindClaimed && b != nil && r.Home == "":
		d.claimed(b, r)
	case r.Kind == messages.KindEnded && b != nil && r.Home == "" && d.Out.Terminal():
		d.say("  "+b.name, "", "done on node %s", d.nameOf(b.node))
	case b != nil && (r.Kind == messages.KindModel || r.Kind == messages.KindTool):
		b.steps++
		b.asks = r.Kind == messages.KindTool
		d.strike()
	case r.Kind == messages.KindAdopted && r.Run == d.id:
		for _, p := range r.Parents {
			if x := d.branches[run.ID(p.Session)]; x != nil {
				d.end(x, "ADOPTED", r.Reason, term.Green)
			}
		}
	case r.Kind == messages.KindRejected:
		for _, p := range r.Branches {
			if x := d.branches[run.ID(p.Session)]; x != nil {
				d.end(x, strings.ToUpper(r.State), r.Reason, term.Red)
			}
		}
	}
}

func (d *fleetDemo) end(b *fleetBranch, word, reason string, color term.Style) {
	d.ends = append(d.ends, term.Pad("  "+b.name, 11)+" "+d.Out.Paint(color, word)+" "+term.Line(reason, 56))
}

// nameOf returns the name of a node.
func (d *fleetDemo) nameOf(incarnation string) string {
	if m := d.nodes.Of(incarnation); m != nil {
		return m.Name
	}
	return incarnation
}

// claimed records the node of a branch.
func (d *fleetDemo) claimed(b *fleetBranch, r *messages.Record) {
	b.node, b.attempts = r.Node, r.Attempt
	if d.victim != nil && b.name == doomed {
		d.say("  "+b.name, term.Yellow, "resumes on node %s after %s: its %s do not run again",
			d.nameOf(b.node), view.Took(time.Since(d.killed)), view.Counted(int64(b.steps), "recorded step"))
		return
	}
	if d.running {
		d.say("  "+b.name, "", "on node %s", d.nameOf(b.node))
		return
	}
	d.begun()
}

// begun prints the nodes of the branches once as many run as can. Their records may
// overtake the fan-out's.
func (d *fleetDemo) begun() {
	claimed := 0
	for _, x := range d.branches {
		if x.node != "" {
			claimed++
		}
	}
	if d.fanned && !d.running && claimed >= d.atOnce {
		d.where()
		d.strike()
	}
}

// where prints the node of each branch.
func (d *fleetDemo) where() {
	d.running = true
	for _, x := range slices.SortedFunc(maps.Values(d.branches), func(a, b *fleetBranch) int { return strings.Compare(a.name, b.name) }) {
		if x.node != "" {
			d.say("  "+x.name, "", "on node %s", d.nameOf(x.node))
		}
	}
}

// strike kills the node of the doomed branch during a model call of the branch, once
// all nodes are at work.
func (d *fleetDemo) strike() {
	for _, b := range d.branches {
		if b.name == doomed && b.asks && b.attempts == 1 && d.running && d.victim == nil && d.failed == nil {
			d.kill(b)
		}
	}
}

// kill ends the node of a branch as it works.
func (d *fleetDemo) kill(b *fleetBranch) {
	m := d.nodes.Of(b.node)
	if m == nil {
		d.failed = fmt.Errorf("demo: branch %s runs on %s, which is no node of this demo", b.name, b.node)
		return
	}
	if d.failed = d.nodes.Kill(m); d.failed != nil {
		return
	}
	d.victim, d.killed = m, time.Now()
	d.say("kill -9", term.Red, "node %s, pid %d, while branch %s asks its model", m.Name, m.PID, b.name)
}
