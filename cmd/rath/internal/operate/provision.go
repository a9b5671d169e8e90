package operate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
)

// provisionFlags are the flags of provision.
type provisionFlags struct {
	replicas      int
	partitions    uint32
	store         string
	keep          time.Duration
	cluster       string
	tags          []string
	fewerReplicas bool
	monitor       []string
	wait          time.Duration
	dryRun        bool

	permissions bool
	role        string
	users       []string
	as          string
}

// Provision is the command "provision".
func Provision(a *app.App) *cobra.Command {
	var f provisionFlags
	cmd := &cobra.Command{
		Use:   "provision",
		Short: "Set up the streams of a fleet on NATS servers, as an operator",
		Long: `Creates the streams, buckets and consumers of nodes, so that the credentials of
nodes need no right to do so, and updates those with other settings than this
release needs. Correct ones stay unchanged: run it before each upgrade. It needs
the credentials of an operator.

A change that would lose or hide data is rejected, and then no stream is
changed: another number of partitions, fewer replicas (without
--fewer-replicas), fewer bytes than stored, or settings that servers cannot
change in an existing stream.

Settings without a flag stay unchanged. Their defaults are 3 replicas, 4
partitions, and 8 GiB for all streams together.

--print-permissions needs no server: it prints the exact permissions of the NATS
user of each role. A node checks them on its start.

Exit code 6 if --dry-run finds a change, 7 if a change is rejected.`,
		Example: `  rath cluster provision --server nats://nats:4222 --creds op.creds --dry-run
  rath cluster provision --server nats://nats:4222 --creds op.creds --replicas 3
  rath cluster provision --print-permissions --role submit --user ana
  rath cluster provision --print-permissions --role host --tenant acme
  rath cluster provision --print-permissions --as nats --user ana=submit \
    --user bob=approve --user eve=operate > accounts.conf`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.permissions {
				return printPermissions(a, &f)
			}
			for _, only := range []string{"role", "user", "as"} {
				if cmd.Flags().Changed(only) {
					return app.Usage(cmd, fmt.Errorf("--%s goes with --print-permissions", only))
				}
			}
			return provision(cmd.Context(), a, &f)
		},
	}
	s := cmd.Flags()
	s.SortFlags = false
	s.BoolVar(&f.dryRun, "dry-run", false, "print the changes without making them")
	s.IntVar(&f.replicas, "replicas", 0, "replicas of each stream: 1, 3 or 5")
	s.Uint32Var(&f.partitions, "partitions", 0, "event streams; fixed after the first installation")
	s.StringVar(&f.store, "store-bytes", "", "total size of all streams, such as 40GiB")
	s.DurationVar(&f.keep, "keep-results", 0, "retention of results, such as 720h")
	s.StringVar(&f.cluster, "placement-cluster", "", "NATS cluster of the streams")
	s.StringSliceVar(&f.tags, "placement-tag", nil, "tag of the streams' servers; can be given again")
	s.BoolVar(&f.fewerReplicas, "fewer-replicas", false, "permit fewer replicas than existing streams have")
	s.StringSliceVar(&f.monitor, "monitor", nil, "monitoring address of a server, to verify fsync; can be given again")
	s.DurationVar(&f.wait, "wait", 0, "time to wait for unreachable servers")
	s.BoolVar(&f.permissions, "print-permissions", false, "print the permissions of each role's NATS user")
	s.StringVar(&f.role, "role", "", "only this role, such as node, submit or approve")
	s.StringSliceVar(&f.users, "user", nil, "its user; without --role a user of the tenant, such as ana=submit; can be given again")
	s.StringVar(&f.as, "as", "table", "table, nats (a server's configuration) or nsc (commands)")
	return cmd
}

// provision plans, and carries the plan out.
func provision(ctx context.Context, a *app.App, f *provisionFlags) error {
	want := streams.Provisioning{
		Partitions: f.partitions, Replicas: f.replicas, KeepResults: f.keep,
		Cluster: f.cluster, Tags: f.tags, FewerReplicas: f.fewerReplicas,
	}
	if f.store != "" {
		var err error
		if want.StoreBytes, err = parseBytes(f.store); err != nil {
			return app.Fail(app.ExitUsage, "--store-bytes: %w", err)
		}
	}
	if !a.Ambient() {
		return app.Fail(app.ExitUsage, "provision sets up NATS servers: name them with --server, NATS_URL or --context; "+
			"the store of a directory is set up by its node")
	}
	o := &streams.Options{Options: conn.Options{Name: "rath cluster provision", Inbox: conn.NodeInbox, Logger: a.Logger()}, Client: true}
	if err := a.Login(o); err != nil {
		return err
	}
	level, err := streams.ParseLevel(a.Config.Level.Value)
	if err != nil {
		return err
	}
	if o.Level = level; level == streams.Fsync && len(f.monitor) > 0 {
		// A connection that stores verifies the durability of its servers.
		o.Client, o.Probe = false, streams.MonitorProbe(f.monitor...)
	}
	plan, err := provisionOnce(ctx, a, f, o, &want)
	for end, pause := time.Now().Add(f.wait), time.Second; err != nil && streams.WillPass(err) && time.Now().Before(end); pause = min(2*pause, 10*time.Second) {
		a.Remark("%s; trying again", term.Line(messages.Text(err), 200))
		timer := time.NewTimer(min(pause, time.Until(end)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		plan, err = provisionOnce(ctx, a, f, o, &want)
	}
	if plan == nil {
		return err
	}
	if told := tellPlan(a, plan, f.dryRun); told != nil {
		return errors.Join(err, told)
	}
	if err != nil {
		return err
	}
	if level == streams.Fsync && len(f.monitor) == 0 {
		a.Remark("whether the servers sync each write was not asked; name their monitoring addresses with --monitor, or let the nodes find out")
	}
	if f.dryRun && len(plan.Pending()) > 0 {
		return app.Silent(app.ExitPartial)
	}
	return nil
}

// provisionOnce plans, applies the plan unless this is a dry run, and returns it.
func provisionOnce(ctx context.Context, a *app.App, f *provisionFlags, o *streams.Options, want *streams.Provisioning) (plan *streams.Plan, err error) {
	conn, err := api.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Conn.Close()) }()
	if plan, err = conn.Streams.Plan(ctx, want); err != nil {
		return nil, err
	}
	if f.dryRun {
		return plan, plan.Refused()
	}
	return plan, conn.Streams.Apply(ctx, plan)
}

// doneWords are the words for completed actions.
var doneWords = map[streams.Action]string{streams.Create: "created", streams.Update: "updated", streams.Keep: "kept", streams.Refuse: "refused"}

func tellPlan(a *app.App, p *streams.Plan, dry bool) error {
	if done, err := app.EmitOne(a, p); done {
		return err
	}
	var rows [][]string
	count := map[string]int64{}
	away := int64(0)
	for _, ch := range p.Changes {
		if ch.Away > 0 {
			away++
		}
		word := string(ch.Action)
		if ch.Done && !dry {
			word = doneWords[ch.Action]
		}
		count[word]++
		rows = append(rows, []string{ch.Kind, ch.Name, word, ch.About})
		for _, d := range ch.Differences {
			rows = append(rows, []string{"", "", "", d.Setting + ": " + d.Have + " -> " + d.Want})
		}
	}
	a.Out.Rows([]string{"KIND", "NAME", "ACTION", "WHAT"}, rows)
	var words []string
	for _, w := range []string{"created", "updated", "removed", "kept", "create", "update", "remove", "keep", "refuse"} {
		if n := count[w]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, w))
		}
	}
	a.Remark("generation %d with %s and %s: %s", p.Generation, view.Counted(int64(p.Partitions), "partition"), view.Counted(int64(p.Replicas), "replica"), strings.Join(words, ", "))
	if away > 0 {
		a.Remark("%s: fewer replicas than %d, because a server is down; \"nats stream report\" names it", view.Counted(away, "stream"), p.Replicas)
	}
	return nil
}

// parseBytes reads a number of bytes: 40GiB, 512MiB, 1073741824. Kubernetes
// writes Gi and Mi.
func parseBytes(s string) (int64, error) {
	number, unit := strings.TrimRight(s, "KMGTiB"), int64(1)
	switch strings.TrimSuffix(s[len(number):], "B") {
	case "":
	case "Ki":
		unit = 1 << 10
	case "Mi":
		unit = 1 << 20
	case "Gi":
		unit = 1 << 30
	case "Ti":
		unit = 1 << 40
	default:
		return 0, fmt.Errorf("%q: want a number of bytes such as 40GiB, 512MiB or 1073741824", s)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q: want a number of bytes such as 40GiB, 512MiB or 1073741824", s)
	}
	return n * unit, nil
}
