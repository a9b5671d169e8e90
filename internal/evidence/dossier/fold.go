package dossier

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// facts folds the whole archive. It reads all contents that it shows from the shelf.
func (a *archive) facts() (*Facts, error) {
	f := &Facts{Run: a.run, Tenant: a.home.Tenant, Home: a.home.ID, Signed: a.marks}
	g, names, err := a.picture(f)
	if err != nil {
		return nil, err
	}
	f.Spent, f.Waited = g.SpentOn(a.home.Tenant, a.run), g.WaitedFor(a.home.Tenant, a.run)
	t := a.timeline(f, g, names)
	t.sessions()
	t.branches()
	t.rejections()
	if err := t.images(); err != nil {
		return nil, err
	}
	if err := t.notes(); err != nil {
		return nil, err
	}
	if err := t.instructed(); err != nil {
		return nil, err
	}
	if err := t.changes(); err != nil {
		return nil, err
	}
	f.Took = f.took()
	f.Verdict = t.verdict()
	f.Blocks = f.fold()
	t.environment()
	t.omitted()
	return f, nil
}

// picture draws the tree and names every session.
func (a *archive) picture(f *Facts) (*lineage.Graph, map[session.ID]string, error) {
	g := lineage.NewGraph()
	for _, c := range a.logs {
		for _, e := range c.entries {
			records, err := lineage.Derive(e)
			if err != nil {
				return nil, nil, fail(Inconsistent, c.key.ID, e.Commit.Seq, "%v", err)
			}
			g.Add(records...)
		}
	}
	names := map[session.ID]string{}
	root := session.Key{Tenant: a.home.Tenant, ID: a.logs[0].entries[0].Commit.Root}
	if a.byID[root.ID] == nil {
		root = a.home
	}
	number := map[session.ID]int{}
	for i, c := range a.logs {
		number[c.key.ID] = i + 1
	}
	o := &lineage.PictureOptions{Lines: 5, MaxSessions: 24, Fold: 6, Link: func(id session.ID, _, _ session.Version) string {
		return fmt.Sprintf("#session-%d", number[id])
	}}
	if p, err := g.Picture(root, o); err == nil {
		f.Picture = p
		for _, n := range p.Nodes {
			names[n.Session] = n.Label
		}
	}
	used := map[string]bool{}
	for _, n := range names {
		used[n] = true
	}
	for i, c := range a.logs {
		if names[c.key.ID] != "" {
			continue
		}
		n := fmt.Sprintf("s%d", i+1)
		for used[n] {
			n += "'"
		}
		names[c.key.ID], used[n] = n, true
	}
	return g, names, nil
}

func (t *timeline) sessions() {
	f := t.f
	first := map[session.ID]int{}
	for _, s := range f.Steps {
		if first[s.Session] == 0 {
			first[s.Session] = s.N
		}
	}
	decided := t.a.decided()
	for _, c := range t.a.logs {
		at := c.states[c.last()-1]
		s := Session{
			N: len(f.Sessions) + 1, ID: c.key.ID, Label: t.name(c.key.ID), Role: "referred to", State: "open", Version: at.version,
			Commits: c.last(), Last: c.head(), Head: at.placement.Head, Step: first[c.key.ID],
		}
		o, _ := c.opening()
		if c.ours {
			f.Numbers.Sessions++
			s.Role = map[string]string{
				session.OpenFork: "branch", session.OpenImplicit: "branch (implicit)", session.OpenDetach: "copy",
				session.OpenMerge: "concatenation", session.OpenCompress: "summary", session.OpenImport: "import", session.OpenCall: "work of a tool call",
			}[o.Kind]
			if c.key.ID == t.a.home.ID {
				s.Role = "home"
			}
		}
		var from []string
		for _, l := range o.Parents {
			from = append(from, fmt.Sprintf("%s at version %d, commit %d", t.name(l.ID), l.Version, l.Seq))
		}
		s.From = strings.Join(from, " and ")
		if d, ok := decided[c.key.ID]; ok && c.key.ID != t.a.home.ID {
			s.State, s.Reason = one(d.state, 20), one(d.reason, 400)
		} else if cl, n := c.closing(); n > 0 {
			s.State, s.Reason = one(cl.State, 20), one(cl.Reason, 400)
		}
		f.Sessions = append(f.Sessions, s)
	}
}

// rejections lists the rejected branches, in the order of the decisions, then the ones
// of fan-outs.
func (t *timeline) rejections() {
	for _, s := range t.f.Steps {
		if s.Kind != journal.StepReject || s.Late {
			continue
		}
		c := t.a.byID[s.Session]
		for _, e := range c.facts[s.Commit-1] {
			if r, ok := e.What.(commitlog.Rejection); ok && !journal.Scratch(r.State, r.Reason) && t.a.runs[e.Recorder()] && strings.HasSuffix(e.Batch, "/"+string(s.Path)) {
				t.f.Rejections = append(t.f.Rejections, Rejection{r.Branch.ID, t.name(r.Branch.ID), t.number(r.Branch.ID), one(r.State, 20), one(r.Reason, 400), s.N})
			}
		}
	}
	for _, b := range t.f.Branches {
		known := slices.ContainsFunc(t.f.Rejections, func(r Rejection) bool { return r.Session == b.Session })
		if !known && b.End != "" && b.End != session.ClosedAdopted && b.End != session.ClosedMerged {
			t.f.Rejections = append(t.f.Rejections, Rejection{b.Session, b.Label, b.In, b.End, b.Reason, b.Decided})
		}
	}
}

// verdict sums the run up in a sentence.
func (t *timeline) verdict() string {
	f := t.f
	var adopted []string
	for _, s := range f.Sessions {
		if s.State == session.ClosedAdopted || s.State == session.ClosedMerged {
			adopted = append(adopted, s.Label+" "+s.State)
		}
	}
	var parts []string
	switch n := len(adopted); {
	case n > 3:
		parts = append(parts, excerpt.Counted(n, "branch")+" adopted or merged")
	case n > 0:
		parts = append(parts, strings.Join(adopted, ", "))
	}
	ways := map[string]int{}
	for _, r := range f.Rejections {
		ways[r.State]++
	}
	for _, w := range []string{session.ClosedRejected, session.ClosedFailed, session.ClosedCancelled} {
		if ways[w] > 0 {
			parts = append(parts, excerpt.Counted(ways[w], "branch")+" "+w)
		}
	}
	tail := ""
	if len(parts) > 0 {
		tail = ": " + strings.Join(parts, ", ")
	}
	why := ""
	for _, s := range f.Steps {
		if s.Kind == "run" && !s.Error.Empty() {
			why = one(s.Error.Shown, 240)
		}
		if s.Kind == "review" {
			why = one(strings.TrimPrefix(s.Text, "needs review: "), 240)
		}
	}
	switch f.State {
	case run.Succeeded:
		return "The run succeeded" + tail + "."
	case run.Failed:
		return "The run failed: " + cmp.Or(why, "no reason is recorded")
	case run.Cancelled:
		return "The run was cancelled: " + cmp.Or(why, "no reason is recorded")
	case run.TimedOut:
		return "The run timed out: " + cmp.Or(why, "no reason is recorded")
	case run.Waiting:
		return "The run waits " + cmp.Or(one(t.unanswered(), 240), "for something") + tail + "."
	case run.NeedsReview:
		return "The run waits for a person: " + cmp.Or(why, "no reason is recorded")
	}
	return "The run has no end in these commits" + tail + "."
}

// environment lists the facts in the commits about the run's surroundings.
func (t *timeline) environment() {
	var nodes, writers, levels, models, revisions, boxes []string
	put := func(list *[]string, s string) {
		if s = one(s, 100); s != "" && !slices.Contains(*list, s) {
			*list = append(*list, s)
		}
	}
	attempts := uint64(0)
	for _, c := range t.a.logs {
		if !c.ours {
			continue
		}
		writer, level := "", journal.DefaultDurability
		for n := uint64(1); n <= c.last(); n++ {
			ours := c.concerns(n, t.a.runs)
			for _, e := range c.facts[n-1] {
				switch p := e.What.(type) {
				case journal.WriterOpened:
					level = cmp.Or(p.Durability, journal.DefaultDurability)
					writer = fmt.Sprintf("%s (epoch %d of %s", p.Incarnation, p.Epoch, t.name(c.key.ID))
					if p.Durability != "" {
						writer += ", durability " + p.Durability
					}
					writer += ")"
				case journal.Claimed:
					if t.a.runs[p.Run] {
						put(&revisions, p.Revision)
					}
					if p.Run == t.a.run {
						attempts = max(attempts, p.Attempt)
					}
				case session.Chunk:
					if t.a.runs[run.ID(p.Origin().Run)] {
						put(&nodes, p.Origin().Node)
					}
				case session.Placement:
					if ours && p.Isolation != "" {
						put(&boxes, p.Backend+", isolation "+p.Isolation)
					}
				case journal.StepCompleted:
					if t.a.runs[p.Run] {
						put(&models, p.Model)
					}
				case journal.Late:
					if t.a.runs[p.Run] {
						put(&models, p.Model)
					}
				}
			}
			if ours {
				put(&writers, writer)
				put(&levels, level)
			}
		}
	}
	add := func(name string, list []string) {
		if len(list) > 0 {
			t.f.Environment = append(t.f.Environment, Fact{name, strings.Join(list, ", ")})
		}
	}
	add("workflow", []string{t.f.Workflow})
	add("revision", revisions)
	add("attempts", []string{fmt.Sprint(attempts)})
	add("nodes", nodes)
	add("writers", writers)
	add("durability", levels)
	add("sandboxes", boxes)
	add("models", models)
}

// recalled is the value of a recall step.
type recalled struct {
	Notes    []string    `json:"notes"`
	Text     blob.Digest `json:"text"`
	Withheld []struct {
		Notes   int    `json:"notes"`
		Session string `json:"session"`
		Why     string `json:"why"`
	} `json:"withheld"`
}

// hit is one found note as stored by a recall.
type hit struct {
	URI     string `json:"uri"`
	Snippet string `json:"snippet"`
}

// memory lists a step that read or wrote a memory.
func (t *timeline) memory(s *Step, p journal.StepCompleted) {
	m := Memory{Step: s.N, Write: p.Kind == journal.StepRemember, Name: one(p.Name, 60), Error: one(p.Error, 300)}
	s.Body = Text{}
	var r recalled
	switch {
	case p.Code != "":
	case m.Write:
		m.Notes = []Note{{URI: one(p.Value, 200), Text: one(p.Summary, 200)}}
	case json.Unmarshal([]byte(p.Value), &r) == nil:
		m.Found = r.Text
		for _, uri := range r.Notes[:min(len(r.Notes), maxNotes)] {
			m.Notes = append(m.Notes, Note{URI: uri})
		}
		for _, l := range r.Withheld[:min(len(r.Withheld), maxNotes)] {
			m.Withheld = append(m.Withheld, one(fmt.Sprintf("%s of session %s: %s", excerpt.Counted(l.Notes, "note"), l.Session, l.Why), 400))
		}
	default:
		s.Body = textOf(p.Value)
	}
	t.f.Memory = append(t.f.Memory, m)
}

// images adds the images in rows of the timeline to the evidence.
func (t *timeline) images() error {
	for i := range t.f.Steps {
		for _, img := range t.f.Steps[i].Images {
			_, why, err := t.a.shelf(img.Digest)
			if err != nil {
				return err
			}
			if why != "" {
				t.left = append(t.left, fmt.Sprintf("an image of step %d, blob %s: %s", t.f.Steps[i].N, img.Digest.Short(), why))
			}
		}
	}
	return nil
}

// maxNotes is the maximum number of listed notes per recall.
const maxNotes = 100

// notes fills in the texts of the recalled notes.
func (t *timeline) notes() error {
	for i := range t.f.Memory {
		m := &t.f.Memory[i]
		texts := map[string]string{}
		if !m.Found.IsZero() {
			data, why, err := t.a.shelf(m.Found)
			if err != nil {
				return err
			}
			var hits []hit
			if why == "" && json.Unmarshal(data, &hits) == nil {
				for _, h := range hits {
					texts[h.URI] = one(h.Snippet, 300)
				}
			} else if why != "" {
				t.left = append(t.left, fmt.Sprintf("the notes that step %d recalled, blob %s: %s", m.Step, m.Found.Short(), why))
			}
		}
		for n := range m.Notes {
			note := &m.Notes[n]
			if text, ok := texts[note.URI]; ok {
				note.Text = text
			}
			note.URI = one(note.URI, 200)
		}
	}
	return nil
}

// omitted lists the contents of this run's commits that the dossier does not show, and
// the missing contents.
func (t *timeline) omitted() {
	earlier, open := 0, 0
	for _, c := range t.a.logs {
		for n := uint64(1); n <= c.last(); n++ {
			if !c.ours || !c.concerns(n, t.a.runs) {
				earlier++
			}
		}
	}
	var cut, whole int
	for _, s := range t.f.Steps {
		if s.Body.More > 0 || s.Args.More > 0 {
			cut++
		}
		if !s.Whole.Digest.IsZero() {
			whole++
		}
		if s.Open {
			open++
		}
	}
	var out []string
	if earlier > 0 {
		out = append(out, excerpt.Counted(earlier, "commit")+" of other runs are in the evidence, because the chain needs them, and not in the timeline.")
	}
	if cut > 0 {
		out = append(out, "Long texts of "+excerpt.Counted(cut, "step")+" are cut here; the commits hold all of them.")
	}
	if whole > 0 {
		out = append(out, "The outputs of "+excerpt.Counted(whole, "step")+" are extracts in the commits too; the whole is a blob, named by its digest and not included.")
	}
	if open > 0 {
		out = append(out, "Announced without a recorded outcome: "+excerpt.Counted(open, "call")+". Nobody knows from these commits what became of it.")
	}
	for _, l := range t.left {
		out = append(out, "Not included: "+l+".")
	}
	t.f.Omitted = out
}
