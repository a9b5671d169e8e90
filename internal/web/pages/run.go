package pages

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// history is the record of a run, and its state at this moment.
type history struct {
	info  messages.RunInfo
	graph *lineage.Graph // nil for a run that ended before a log held it
	root  session.Key
	talk  messages.Session
	live  *messages.Live // of an open run, if its node answers
}

// readHistory reads a run that the caller may see.
func readHistory(v *visit, id run.ID) (*history, error) {
	if session.ValidID("run", string(id)) != nil {
		return nil, errNothing
	}
	h := &history{}
	var err error
	if h.info, err = v.Client.Runs.Get(v.ctx, id); err != nil {
		return nil, err
	}
	if !v.Own(&h.info) {
		return nil, errNothing
	}
	if h.info.Session == "" {
		return h, nil
	}
	h.graph, h.root, err = view.LineagePage(v.Client.Lineage.Page).RunGraph(v.ctx, v.Tenant, &h.info)
	if errors.Is(err, view.ErrNoLineage) || errors.Is(err, session.ErrNotFound) {
		h.graph, err = nil, nil
	}
	return h, err
}

// tail reads at most the last rows of a session.
func (v *visit) tail(ref string, most int) (messages.Session, error) {
	s, err := v.Client.Sessions.After(v.ctx, ref, 1<<40) // its length
	if err != nil || s.Total == 0 {
		return s, err
	}
	return v.Client.Sessions.After(v.ctx, ref, uint64(max(s.Total-most, 0)))
}

// talkTail is the number of rows at the end of a session that a page of the newest calls
// reads: a call has at most a few.
const talkTail = 4 * mostRows

// converse reads the rows of a run's session, with whole all of them, and the run's state
// at this moment.
func converse(v *visit, h *history, whole bool) error {
	ref := string(h.info.Session)
	if h.info.Result != nil {
		ref = h.info.Result.String()
	}
	most := talkTail
	if whole {
		most = 1 << 40
	}
	var err error
	if h.talk, err = v.tail(ref, most); err != nil && !errors.Is(err, session.ErrArchived) {
		return err
	}
	if !h.info.State.Terminal() {
		ctx, cancel := context.WithTimeout(v.ctx, 3*time.Second)
		defer cancel()
		if l, err := v.Client.Runs.Live(ctx, h.info.Run); err == nil && !l.State.Terminal() {
			h.live = &l
		}
	}
	return nil
}

// runPage is the body of the page of a run.
type runPage struct {
	Info      *messages.RunInfo
	State     stateView
	Sentences []string
	Remedy    *notice // its Link and Href
	Asked     string
	Status    string // that the workflow reported
	Node      string
	Elapsed   string
	Cost      string
	Budget    string
	Open      bool // it has not ended
	Resumable bool // it ended without success, and is no branch
	Rows      []*row
	Total     int
	From      int    // the number of the first row, from 1
	Earlier   string // links
	Later     string
	Find      string
	Fans      []*fan
	Branches  int
	Files     []manifest.FileDiff
	FilesHref string
	FilesNote string
	Spent     []lineage.Spent
	Spending  view.Spending
	Restart   *row // the row of the form
	Href      string
	Events    string
}

// mostRows bounds the rows of a page.
const mostRows = 200

func (v *visit) run() error {
	id := run.ID(v.r.PathValue("run"))
	h, err := readHistory(v, id)
	if err != nil {
		return err
	}
	return showRun(v, 200, h, nil)
}

func showRun(v *visit, status int, h *history, said *notice) error {
	id := h.info.Run
	b := &runPage{Info: &h.info, Asked: cmp.Or(h.info.Asked, string(id)), Open: !h.info.State.Terminal(), Href: v.base() + "/runs/" + string(id), Node: view.NodeOf(&h.info, nil), Status: view.StatusText(&h.info)}
	b.Events = "/events" + v.base() + "/runs/" + string(id)
	if h.graph != nil {
		q := v.r.URL.Query()
		if err := converse(v, h, q.Has("q") || q.Has("before")); err != nil {
			return err
		}
		fillRows(v, b, h)
		if err := fillSide(v, b, h); err != nil {
			return err
		}
	}
	fillHead(v, b, h)
	f := &frame{
		Title: fmt.Sprintf("%s · %s", id, b.State.Word), Here: "runs", Notice: said, Body: b,
		Same: []string{"rath show " + string(id) + " -f", v.curl("GET", "/runs/"+string(id))},
		Keys: []key{{"j k", "row"}, {"R", "restart from here"}, {"w", "why"}, {"?", "all keys"}},
	}
	for _, w := range h.info.Waits {
		switch name, key, _ := strings.Cut(w.Name, " "); w.Kind {
		case run.WaitEvent:
			f.Same = append(f.Same, "rath event publish "+name+" '"+strings.ReplaceAll(plain(key), "'", `'\''`)+"'")
		case run.WaitQuota:
			f.Same = append(f.Same, "rath cluster quota open "+string(v.Tenant))
		}
	}
	return v.show(status, "run", f)
}

// fillHead makes the state, one sentence why, and the remedy.
func fillHead(v *visit, b *runPage, h *history) {
	r := &h.info
	b.State, b.Cost = stateOf(r, h.live), usd(cmp.Or(b.Spending.Usage, r.Usage))
	since, until := time.UnixMilli(cmp.Or(r.Submitted, r.Started)), v.now
	if r.Ended > 0 {
		until = time.UnixMilli(r.Ended)
	}
	b.Elapsed = view.Took(max(until.Sub(since), 0))
	if h.graph != nil {
		t := taskOf(v, h)
		if t.Budget.MicroUSD > 0 {
			b.Budget = usd(session.Usage{MicroUSD: t.Budget.MicroUSD})
		}
		if h.info.Asked == "" {
			b.Asked = cmp.Or(firstLine(t.Text()), b.Asked)
		}
	}
	asks := asksOf(r)
	switch {
	case len(asks) > 0:
		w := asks[0]
		text := w.String()
		if w.Kind == waitReview {
			text = w.Title
		}
		b.Sentences = []string{text}
		if w.Kind != run.WaitMessage {
			b.Remedy = &notice{Link: map[bool]string{true: "Decide", false: "Answer"}[w.Kind == waitReview], Href: questionHref(v, r.Run, w)}
		}
	case h.live != nil:
		b.Sentences = view.LiveText(h.live)
		if b.State.Class == "stuck" {
			for _, row := range slices.Backward(b.Rows) {
				if row.Restart != "" && row.Class == "stuck" {
					b.Remedy = &notice{Link: "Restart with another model…", Href: b.Href + "?restart=" + url.QueryEscape(row.ID) + "#restart"}
					break
				}
			}
		}
	case r.State.Terminal() && r.State != run.Succeeded:
		b.Sentences = []string{cmp.Or(view.RunNote(r, func(id run.ID) string { return string(id) }), "It ended as "+strings.ReplaceAll(string(r.State), "_", " ")+".")}
		if b.Resumable = r.BranchOf == nil && r.Cleanup == ""; b.Resumable {
			b.Remedy = &notice{Link: "Continue at the failed step…", Href: "#resume"}
		}
		if r.Cleanup != "" {
			b.Remedy = &notice{Link: "See its cleanup run…", Href: v.base() + "/runs/" + string(r.Cleanup)}
		}
	case r.State == run.Succeeded:
		for _, row := range slices.Backward(b.Rows) {
			if row.Said != "" {
				b.Sentences = []string{row.By + ": “" + firstLine(unmarked.Replace(row.Said)) + "”"}
				break
			}
		}
	default:
		b.Sentences = []string{view.RunNote(r, func(id run.ID) string { return string(id) })}
	}
}

// unmarked takes the commonest marks of Markdown out of a line.
var unmarked = strings.NewReplacer("**", "", "`", "", "# ", "")

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200]) + "…"
	}
	return s
}

// fillRows chooses the rows of the page: those before a number, or those with a text.
func fillRows(v *visit, b *runPage, h *history) {
	all := rowsOf(v, h)
	q := v.r.URL.Query()
	b.Find = strings.TrimSpace(q.Get("q"))
	if b.Find != "" {
		needle := strings.ToLower(b.Find)
		all = slices.DeleteFunc(all, func(r *row) bool { return !strings.Contains(r.text(), needle) })
	}
	b.Total = len(all)
	end := len(all)
	if n, err := strconv.Atoi(q.Get("before")); err == nil && n > 0 && n < end {
		end = n
	}
	from := max(end-mostRows, 0)
	b.Rows, b.From = all[from:end], from+1
	link := func(before int) string {
		args := url.Values{"before": {strconv.Itoa(before)}}
		if b.Find != "" {
			args.Set("q", b.Find)
		}
		return b.Href + "?" + args.Encode()
	}
	if from > 0 {
		b.Earlier = link(from)
	}
	if end < len(all) {
		b.Later = link(min(end+mostRows, len(all)))
	}
	countLines(v, v.ctx, b.Rows)
	for _, r := range all {
		if r.Fan != nil {
			b.Fans = append(b.Fans, r.Fan)
			b.Branches += len(r.Fan.Branches)
		}
		if r.ID == q.Get("restart") && r.Restart != "" {
			b.Restart = r
		}
	}
}

// fillSide makes the files and the cost.
func fillSide(v *visit, b *runPage, h *history) error {
	var err error
	if b.Spending, err = view.SpendingOf(h.graph, v.Tenant, h.info.Run, v.now); err != nil {
		return err
	}
	b.Spent = b.Spending.Calls
	b.FilesHref = b.Href + "/files"
	from, to, ok := headsOf(v, h)
	if !ok {
		b.FilesNote = "This run has no files."
		return nil
	}
	b.Files, err = manifest.Patch(v.ctx, v.Client.Blobs(), from, to)
	if errors.Is(err, blob.ErrNotFound) {
		b.FilesNote, err = "The files are no longer stored.", nil
	}
	b.Files = slices.DeleteFunc(b.Files, isDir)
	if len(b.Files) == 0 && b.FilesNote == "" {
		b.FilesNote = "None."
	}
	return err
}

func isDir(d manifest.FileDiff) bool {
	return d.Before.Kind == manifest.Dir || d.After.Kind == manifest.Dir
}

// headsOf returns the files with which a run began, and its files so far; ok is false for
// a run without files.
func headsOf(v *visit, h *history) (from, to blob.Digest, ok bool) {
	key := session.Key{Tenant: v.Tenant, ID: h.info.Session}
	if h.info.Result != nil {
		key.ID = h.info.Result.Session
	}
	changes, err := h.graph.Heads(key, 0)
	if err != nil || len(changes) == 0 {
		return from, to, false
	}
	first := -1
	for i := range changes {
		if c := &changes[i]; first < 0 && (c.Run == h.info.Run || c.Run != "" && isBranchOf(v, h, c.Run)) {
			first = i
		}
	}
	at := changes[len(changes)-1].Head
	switch {
	case first >= 0 && changes[first].HeadFrom == "": // as they came in
		at = changes[first].Head
	case first >= 0:
		at = changes[first].HeadFrom
	}
	if from, err = blob.ParseDigest(at); err != nil {
		return from, to, false
	}
	to, err = blob.ParseDigest(changes[len(changes)-1].Head)
	return from, to, err == nil
}

// isBranchOf reports whether a run is a branch of the history's run.
func isBranchOf(v *visit, h *history, id run.ID) bool {
	r, err := h.graph.Run(v.Tenant, id)
	return err == nil && r.BranchOf != nil && r.BranchOf.Run == h.info.Run
}

// listedRuns bounds the newest runs of a page, and openRuns the open ones.
const (
	listedRuns = 200
	openRuns   = 500
)

type runsPage struct {
	Where  string
	Show   string
	Chips  []chip
	Groups []runGroup
	Older  string
	Total  int
}

type chip struct {
	Name, Class, Href string
	Count             int
	Current           bool
}

type runGroup struct {
	Name, Note string
	Rows       []runRow
}

type runRow struct {
	*messages.RunInfo
	State      stateView
	Href       string
	Now, Small string
	Since      time.Time
	Cost       string
	Open       bool
}

func (v *visit) runs() error {
	q := v.r.URL.Query()
	b := &runsPage{Where: strings.TrimSpace(q.Get("where")), Show: q.Get("show")}
	after, err := strconv.ParseUint(cmp.Or(q.Get("after"), "0"), 10, 64)
	if err != nil {
		return errNothing
	}
	var said *notice
	all, next, behind, err := listRuns(v, b.Where, after)
	if behind > 0 {
		said = &notice{Icon: "wait", Bold: "This list was read from the whole history.", Text: fmt.Sprintf("The node's index of runs is %d records behind.", behind)}
	}
	if errors.Is(err, run.ErrMalformed) {
		said, err = &notice{Class: "fail", Icon: "fail", Bold: "These conditions were not understood.", Text: messages.Text(err)}, nil
	}
	if err != nil {
		return err
	}
	notes := view.LiveNotes(v.ctx, v.Client.Runs.Live, all)
	groups := map[string]*runGroup{
		"stuck":   {Name: "Stuck", Note: "no progress, and nobody is asked"},
		"asks":    {Name: "Asks", Note: "a person has to answer"},
		"running": {Name: "Running"},
		"ended":   {Name: "Ended", Note: "newest first"},
	}
	failed := 0
	short := view.ShortIDs(view.RunIDs(all))
	for i := range all {
		row := rowOf(v, &all[i], notes[all[i].Run], short)
		name := "running"
		switch {
		case row.State.Class == "fail":
			failed++
			name = "ended"
		case all[i].State.Terminal():
			name = "ended"
		case row.State.Class == "stuck" || row.State.Class == "retry":
			name = "stuck"
		case row.State.Class == "ask" || row.State.Class == "review":
			name = "asks"
		}
		groups[name].Rows = append(groups[name].Rows, row)
	}
	b.fill(v, groups, failed, len(all))
	if next > 0 && (b.Show == "" || b.Show == "failed") { // all open runs are here
		b.Older = b.href(v, b.Show, next)
	}
	for _, g := range b.Groups {
		b.Total += len(g.Rows)
	}
	where := ""
	if b.Where != "" {
		where = " --where '" + plain(b.Where) + "'"
	}
	f := &frame{
		Title: "Runs", Here: "runs", Notice: said, Body: b, Same: []string{"rath ps" + where, v.curl("GET", "/runs")},
		Keys: []key{{"j k", "row"}, {"Enter", "open"}, {"space", "choose"}, {"1 … 5", "filter"}, {"?", "all keys"}},
	}
	return v.show(200, "runs", f)
}

// listRuns returns the newest runs before a place, the newest first, and the place of the
// next ones; the first page has all open runs. behind is that of wire.Runs.
func listRuns(v *visit, where string, after uint64) (all []messages.RunInfo, next, behind uint64, err error) {
	o := client.RunsOptions{Where: cmp.Or(where, "branch=no")}
	var page wire.Runs
	data, err := v.Client.Query(v.ctx, messages.QueryRuns, wire.Query{Where: o.Where, Limit: listedRuns, After: after})
	if err == nil {
		err = json.Unmarshal(data, &page)
	}
	if err != nil {
		return nil, 0, 0, err
	}
	if all = page.Runs; page.Next > 0 && after == 0 {
		seen := map[run.ID]bool{}
		for i := range all {
			seen[all[i].Run] = true
		}
		o.States, o.Limit = []run.State{run.Queued, run.Running, run.Waiting, run.NeedsReview}, openRuns
		open, err := v.Client.Runs.List(v.ctx, &o)
		if err != nil {
			return nil, 0, 0, err
		}
		for i := range open {
			if !seen[open[i].Run] {
				all = append(all, open[i])
			}
		}
	}
	return slices.DeleteFunc(all, func(r messages.RunInfo) bool { return !v.Own(&r) }), page.Next, page.Behind, nil
}

func rowOf(v *visit, r *messages.RunInfo, live *messages.Live, short func(run.ID) string) runRow {
	row := runRow{RunInfo: r, State: stateOf(r, live), Href: v.base() + "/runs/" + string(r.Run), Since: time.UnixMilli(r.Submitted), Cost: usd(r.Usage), Open: !r.State.Terminal()}
	row.Now = view.NoteNow(r, live, short)
	if asks := asksOf(r); len(asks) > 0 {
		row.Now = cmp.Or(asks[0].Title, asks[0].Name, asks[0].Kind)
		if asks[0].Due > 0 {
			row.Small = view.Left(v.now, asks[0].Due) + " left to answer"
		}
	} else if live != nil && len(live.Steps) > 0 {
		row.Small = view.Doing(&live.Steps[0], time.UnixMilli(live.At))
	}
	return row
}

// href is the address of a list of runs with the same conditions.
func (b *runsPage) href(v *visit, show string, after uint64) string {
	args := url.Values{}
	if b.Where != "" {
		args.Set("where", b.Where)
	}
	if show != "" {
		args.Set("show", show)
	}
	if after > 0 {
		args.Set("after", fmt.Sprint(after))
	}
	return strings.TrimSuffix(v.base()+"/runs?"+args.Encode(), "?")
}

// fill makes the chips and the chosen groups.
func (b *runsPage) fill(v *visit, groups map[string]*runGroup, failed, all int) {
	for _, c := range []chip{
		{Name: "All", Count: all},
		{Name: "Stuck", Class: "stuck", Href: "stuck", Count: len(groups["stuck"].Rows)},
		{Name: "Asks", Class: "ask", Href: "asks", Count: len(groups["asks"].Rows)},
		{Name: "Failed", Class: "fail", Href: "failed", Count: failed},
		{Name: "Running", Class: "run", Href: "running", Count: len(groups["running"].Rows)},
	} {
		c.Current = c.Href == b.Show
		c.Href = b.href(v, c.Href, 0)
		b.Chips = append(b.Chips, c)
	}
	for _, name := range []string{"stuck", "asks", "running", "ended"} {
		g := *groups[name]
		if b.Show == "failed" && name == "ended" {
			g.Name = "Failed"
			g.Rows = slices.DeleteFunc(slices.Clone(g.Rows), func(r runRow) bool { return r.State.Class != "fail" })
		} else if b.Show != "" && b.Show != name {
			continue
		}
		if len(g.Rows) > 0 {
			b.Groups = append(b.Groups, g)
		}
	}
}
