package pages

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

type sessionsPage struct {
	Rows []sessionRow
	Cut  bool
}

type sessionRow struct {
	ID    session.ID
	Href  string
	Run   *runRow
	Count int
}

// sessions lists the sessions on which the newest runs work, with their newest runs.
func (v *visit) sessions() error {
	runs, err := v.Client.Runs.List(v.ctx, &client.RunsOptions{Where: "branch=no", Limit: listedRuns})
	if err != nil {
		return err
	}
	b := &sessionsPage{Cut: len(runs) == listedRuns}
	at := map[session.ID]int{}
	short := view.ShortIDs(view.RunIDs(runs))
	for i := range runs {
		r := &runs[i]
		if r.Session == "" || !v.Own(r) {
			continue
		}
		n, seen := at[r.Session]
		if !seen {
			n = len(b.Rows)
			at[r.Session] = n
			b.Rows = append(b.Rows, sessionRow{ID: r.Session, Href: v.base() + "/sessions/" + string(r.Session), Run: new(rowOf(v, r, nil, short))})
		}
		b.Rows[n].Count++
	}
	return v.show(200, "sessions", &frame{Title: "Sessions", Here: "sessions", Body: b, Same: []string{"rath session ls", v.curl("GET", "/sessions")}, Keys: []key{{"j k", "row"}, {"Enter", "open"}, {"?", "all keys"}}})
}

type sessionPage struct {
	Session  messages.Session
	Newest   session.Version
	Tree     string // the link to the parts that need the lineage of the whole tree
	Href     string
	Rows     []messages.Chunk
	From     int
	Earlier  string
	Later    string
	Versions []versionRow
	Forks    []sessionLink
	Parents  []sessionLink
	Runs     []runRow
}

type sessionLink struct{ Label, Href, Note string }

type versionRow struct {
	Version session.Version
	Text    string
	At      time.Time
	Href    string
}

// rowsPerSession bounds the rows of a session on a page, and mostVersions its versions. The
// page of a session with more than treeRows rows has its tree behind a link.
const (
	rowsPerSession = 100
	mostVersions   = 200
	treeRows       = 1000
)

func (v *visit) session() error {
	ref, err := session.ParseRef(v.Tenant, v.r.PathValue("session"))
	if err != nil {
		return errNothing
	}
	name := v.r.PathValue("session")
	meta, err := v.Client.Sessions.After(v.ctx, name, 1<<40) // its length, without rows
	if err != nil {
		return err
	}
	b := &sessionPage{Href: v.base() + "/sessions/" + name}
	from := max(meta.Total-rowsPerSession, 0)
	if n, err := strconv.Atoi(v.r.URL.Query().Get("from")); err == nil {
		from = max(min(n-1, meta.Total-1), 0)
	}
	if b.Session, err = v.Client.Sessions.After(v.ctx, name, uint64(from)); err != nil {
		return err
	}
	b.Rows, b.From = b.Session.Chunks[:min(len(b.Session.Chunks), rowsPerSession)], from+1
	if from > 0 {
		b.Earlier = fmt.Sprintf("%s?from=%d", b.Href, max(from-rowsPerSession, 0)+1)
	}
	if from+len(b.Rows) < meta.Total {
		b.Later = fmt.Sprintf("%s?from=%d", b.Href, from+len(b.Rows)+1)
	}
	b.Newest = meta.Version
	if ref.Version > 0 {
		newest, err := v.Client.Sessions.After(v.ctx, string(meta.Session), 1<<40)
		if err != nil {
			return err
		}
		b.Newest, meta.Total = newest.Version, newest.Total
	}
	for _, p := range b.Session.Parents {
		b.Parents = append(b.Parents, sessionLink{Label: p.String(), Href: v.base() + "/sessions/" + p.String()})
	}
	if meta.Total > treeRows && !v.r.URL.Query().Has("tree") && !v.Narrow() {
		b.Tree = b.Href + "?tree#side"
	} else if err := fillTree(v, b); err != nil {
		return err
	}
	return v.show(200, "session", &frame{
		Title: "session " + string(b.Session.Session), Here: "sessions", Body: b, Keys: []key{{"j k", "row"}, {"?", "all keys"}},
		Same: []string{"rath show " + name, v.curl("GET", "/sessions/"+name)},
	})
}

// fillTree makes the versions of a session, its runs and forks.
func fillTree(v *visit, b *sessionPage) error {
	g, root, err := view.LineagePage(v.Client.Lineage.Page).Graph(v.ctx, v.Tenant, b.Session.Session)
	if err != nil {
		return err
	}
	info, err := g.Session(session.Key{Tenant: v.Tenant, ID: b.Session.Session})
	if err != nil {
		return err
	}
	var infos []messages.RunInfo
	for _, id := range info.Runs {
		if r, err := v.Client.Runs.Get(v.ctx, id); err == nil && len(infos) < mostVersions {
			infos = append(infos, r)
		}
	}
	if v.Narrow() && !slices.ContainsFunc(infos, func(r messages.RunInfo) bool { return v.Own(&r) }) {
		return errNothing
	}
	short := view.ShortIDs(view.RunIDs(infos))
	for i := range infos {
		b.Runs = append(b.Runs, rowOf(v, &infos[i], nil, short))
	}
	last := session.Version(0)
	for _, r := range g.Records(info.Key) {
		if r.Version > last {
			last = r.Version
			b.Versions = append(b.Versions, versionRow{r.Version, r.Summary, r.When(), fmt.Sprintf("%s/sessions/%s:%d", v.base(), b.Session.Session, r.Version)})
		}
	}
	b.Versions = b.Versions[max(len(b.Versions)-mostVersions, 0):]
	tree, err := g.Sessions(v.Tenant, root.ID)
	if err != nil {
		return err
	}
	for _, s := range tree {
		for _, p := range s.Parents {
			if p.Session == b.Session.Session && len(b.Forks) < mostVersions {
				b.Forks = append(b.Forks, sessionLink{Label: cmp.Or(s.Name, lineage.Short(s.Key.ID)), Href: v.base() + "/sessions/" + string(s.Key.ID), Note: fmt.Sprintf("at %d, %s %s", p.Version, s.Disposition, s.Reason)})
			}
		}
	}
	return nil
}

// fleet

type fleetPage struct {
	Top     view.Top
	Letters []messages.StoredLetter
	Fullest []messages.StreamFill
	Slots   int
	Free    int
	Oldest  string
	Look    []string
}

// mostLetters bounds the dead letters of the page.
const mostLetters = 50

func (v *visit) fleet() error {
	if v.Narrow() {
		return errNothing
	}
	b := &fleetPage{Top: view.Top{At: v.now.UnixMilli(), Tenant: string(v.Tenant), Runs: map[run.State]int{}}}
	open, err := v.Client.Runs.List(v.ctx, &client.RunsOptions{States: []run.State{run.Queued, run.Running, run.Waiting, run.NeedsReview}, Limit: openRuns})
	if err != nil {
		return err
	}
	for i := range open {
		b.Top.Runs[open[i].State]++
	}
	if b.Top.Nodes, err = v.Client.Fleet.Nodes(v.ctx); err != nil {
		return err
	}
	workflows, err := v.Client.Workflows(v.ctx)
	if err != nil {
		return err
	}
	b.Top.Pools = view.PoolsOf(b.Top.Nodes, workflows, open, v.now)
	if b.Top.Streams, err = v.Client.Fleet.Streams(v.ctx); err != nil {
		return err
	}
	if b.Letters, err = v.Client.Fleet.DeadLetters(v.ctx, mostLetters); err != nil {
		return err
	}
	b.Top.Stuck, b.Top.Unasked = view.StuckOf(v.ctx, v.Client.Runs.Live, open)
	b.sum()
	return v.show(200, "fleet", &frame{
		Title: "Fleet", Here: "fleet", Body: b, Same: []string{"rath top", v.curl("GET", "/nodes")}, Keys: []key{{"g q", "questions"}, {"g r", "runs"}, {"?", "all keys"}},
	})
}

// fullFrom is the fill from which a stream needs a look; from 85 % it takes no new runs.
const fullFrom = 0.75

// Runs counts the open runs in a state.
func (b *fleetPage) Runs(state string) int { return b.Top.Runs[run.State(state)] }

func (b *fleetPage) sum() {
	oldest := int64(0)
	for _, p := range b.Top.Pools {
		b.Slots, b.Free, oldest = b.Slots+p.Slots, b.Free+p.Free, max(oldest, p.OldestMS)
	}
	b.Oldest = cmp.Or(took(oldest), "none")
	b.Fullest = slices.Clone(b.Top.Streams)
	slices.SortFunc(b.Fullest, func(x, y messages.StreamFill) int { return cmp.Compare(Fill(y), Fill(x)) })
	if n := len(b.Top.Stuck); n > 0 {
		b.Look = append(b.Look, view.Counted(int64(n), "run")+" without progress.")
	}
	for _, s := range b.Fullest {
		if f := Fill(s); f >= fullFrom {
			b.Look = append(b.Look, fmt.Sprintf("Stream %s is %.0f %% full; at 85 %% it takes no new runs.", s.Stream, 100*f))
		}
	}
	for _, n := range b.Top.Nodes {
		if n.Dead {
			b.Look = append(b.Look, "Node "+n.Name+" is dead.")
		}
	}
	if n := len(b.Letters); n > 0 {
		b.Look = append(b.Look, view.Counted(int64(n), "task")+" accepted by no node.")
	}
}

// operate drains a node, or retries or drops a dead letter.
func (v *visit) operate() error {
	verb, name := v.r.PathValue("verb"), v.r.PathValue("name")
	needs, known := map[string]string{"drain": messages.VerbNodeDrain, "retry": messages.VerbLetterRetry, "drop": messages.VerbLetterDrop}[verb]
	if !known || v.Narrow() {
		return errNothing
	}
	if err := v.May(needs); err != nil {
		return err
	}
	var err error
	if verb == "drain" {
		err = v.Client.Fleet.Drain(v.ctx, name)
		if err == nil {
			err = v.to(v.base() + "/fleet")
		}
		return err
	}
	at, err := strconv.ParseUint(name, 10, 64)
	if err != nil {
		return errNothing
	}
	if verb == "drop" {
		if err := v.Client.Fleet.DropDeadLetter(v.ctx, at, messages.Control{Reason: v.r.PostForm.Get("reason")}); err != nil {
			return err
		}
		return v.to(v.base() + "/fleet")
	}
	id, err := v.Client.Fleet.RetryDeadLetter(v.ctx, at, messages.Control{})
	if err != nil {
		return err
	}
	return v.to(v.base() + "/runs/" + string(id))
}
