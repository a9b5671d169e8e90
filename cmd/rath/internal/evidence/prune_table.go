package evidence

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/nats/retention"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/session"
)

// prunedTree is the outcome for one tree.
type prunedTree struct {
	Tenant   session.Tenant  `json:"tenant"`
	Root     session.ID      `json:"root"`
	Sessions []session.ID    `json:"sessions"`
	State    retention.State `json:"state"`
	Reason   string          `json:"reason,omitempty"`
	File     string          `json:"file,omitempty"`
	Size     int64           `json:"size,omitempty"`
	Bytes    int64           `json:"bytes"`
	LastMS   int64           `json:"last_ms"`
}

// pruned prints the outcome for each tree. whole reports that out covers all trees.
func pruned(a *app.App, out []retention.Outcome, freed int, whole bool) error {
	views := make([]prunedTree, len(out))
	for i, o := range out {
		v := prunedTree{
			Tenant: o.Tenant, Root: o.Root, State: o.State, Reason: o.Reason, File: o.File, Size: o.Size,
			Bytes: o.Bytes, LastMS: o.Last.UnixMilli(),
		}
		for _, s := range o.Sessions {
			v.Sessions = append(v.Sessions, s.ID)
		}
		views[i] = v
	}
	if done, err := app.Emit(a, views); done {
		return err
	}
	var bytes int64
	n := map[retention.State]int{}
	for _, v := range views {
		n[v.State]++
		if v.State == retention.Due || v.State == retention.Archived {
			bytes += v.Bytes
		}
	}
	if rows := prunedRows(views, time.Now(), a.Out.Terminal()); len(rows) > 0 {
		a.Out.Rows([]string{"TREE", "TENANT", "SESSIONS", "BYTES", "USED", "STATE", ""}, rows)
	}
	if fenced := int64(n[retention.Fenced]); fenced > 0 {
		a.Remark("%s fenced and not purged: no commit is accepted there until another prune finishes, or releases the tree with --keep TENANT=forever", view.Counted(fenced, "tree"))
	}
	switch {
	case n[retention.Due] > 0:
		a.Remark("%s would be archived and purged, %s of commits", view.Counted(int64(n[retention.Due]), "tree"), view.Counted(bytes, "byte"))
	case n[retention.Archived] > 0:
		a.Remark("archived and purged %s, %s of commits", view.Counted(int64(n[retention.Archived]), "tree"), view.Counted(bytes, "byte"))
	case whole && n[retention.Failed] == 0 && n[retention.Removed] == 0 && freed == 0:
		a.Remark("nothing is due")
	}
	if removed := int64(n[retention.Removed]); removed > 0 {
		a.Remark("removed %s of limits and events without use", view.Counted(removed, "log"))
	}
	if freed > 0 {
		a.Remark("removed %s", view.Counted(int64(freed), "result"))
	}
	if text := keptText(views); text != "" {
		a.Remark("%s", text)
	}
	return nil
}

// keptReasons bounds the reasons for keeping trees that are named.
const keptReasons = 3

// keptText counts the trees that are kept, by reason; "" without any.
func keptText(views []prunedTree) string {
	n, one, all := map[string]int{}, map[string]string{}, 0
	for _, v := range views {
		if v.State != retention.Kept {
			continue
		}
		reason := v.Reason
		if _, rest, ok := strings.Cut(reason, " ago, "); ok { // the age differs from tree to tree
			reason = rest
		}
		some := reason
		if f := strings.SplitN(reason, " ", 3); len(f) == 3 && slices.Contains([]string{"run", "session", "branch"}, f[0]) { // as does its name
			some = "a " + f[0] + " " + f[2]
		}
		n[some]++
		one[some] = reason
		all++
	}
	if all == 0 {
		return ""
	}
	text, left := view.Counted(int64(all), "tree")+" left as it is: ", all
	if all > 1 {
		text = view.Counted(int64(all), "tree") + " left as they are: "
	}
	reasons := slices.SortedFunc(maps.Keys(n), func(a, b string) int { return cmp.Or(cmp.Compare(n[b], n[a]), cmp.Compare(a, b)) })
	var parts []string
	for _, reason := range reasons[:min(len(reasons), keptReasons)] {
		part := reason
		if n[reason] == 1 {
			part = one[reason]
		}
		if len(reasons) > 1 {
			part += fmt.Sprintf(" (%d)", n[reason])
		}
		parts = append(parts, part)
		left -= n[reason]
	}
	if left > 0 {
		parts = append(parts, fmt.Sprintf("other reasons, see --format jsonl (%d)", left))
	}
	return text + strings.Join(parts, "; ")
}

// prunedRows is the table of the trees that are not kept. On a terminal ids are short,
// and the archive that was written is named on a line of its own.
func prunedRows(views []prunedTree, now time.Time, looks bool) [][]string {
	var rows [][]string
	for _, v := range views {
		if v.State == retention.Kept || v.State == retention.Removed {
			continue
		}
		root, what := string(v.Root), v.Reason
		switch {
		case looks:
			root = lineage.Short(v.Root)
		case what == "":
			what = v.File
		}
		rows = append(rows, []string{
			root, string(v.Tenant), fmt.Sprint(len(v.Sessions)), excerpt.Thousands(v.Bytes), view.Age(now, time.UnixMilli(v.LastMS)), string(v.State), term.Line(what, 200),
		})
		if looks && v.File != "" && v.State != retention.Due {
			rows = append(rows, []string{"  " + term.Line(v.File, 200)})
		}
	}
	return rows
}
