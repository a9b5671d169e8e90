package lineage

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// PictureOptions configure [Graph.Picture]; nil means the defaults.
type PictureOptions struct {
	// Title is the picture's caption; "" for none.
	Title string
	// Lines is the maximum number of lines per node; 0 means 7.
	Lines int
	// MaxSessions is the maximum number of sessions; 0 means 60. Omitted counts the
	// others.
	MaxSessions int
	// Fold is the number of sessions drawn if more than ten were opened from one; 0
	// draws all. Omitted counts the others.
	Fold int
	// Link, if set, returns the target of a node's link, "" for none.
	Link func(id session.ID, from, to session.Version) string
}

// Picture is a tree prepared for drawing: sessions cut into stretches where branches fork
// and merge, and the edges between them. It is acyclic.
type Picture struct {
	Title   string `json:"title,omitempty"`
	Nodes   []Node `json:"nodes"`
	Edges   []Edge `json:"edges"`
	Omitted int    `json:"omitted,omitempty"` // sessions
}

// Node is a stretch of one session.
type Node struct {
	ID          string          `json:"id"` // unique in the picture
	Session     session.ID      `json:"session"`
	Label       string          `json:"label"`
	Title       string          `json:"title,omitempty"` // of the first stretch: the session's origin
	From        session.Version `json:"from"`            // version at its beginning
	To          session.Version `json:"to"`
	Disposition string          `json:"disposition"`
	Reason      string          `json:"reason,omitempty"` // of the disposition, on the last stretch
	Last        bool            `json:"last"`
	Lines       []Line          `json:"lines,omitempty"`
	Hidden      int             `json:"hidden,omitempty"` // number of omitted lines
	Link        string          `json:"link,omitempty"`

	commit uint64 // the first one
}

// The kinds of edges.
const (
	EdgeContinues = "continues"
	EdgeForked    = "forked"
	EdgeDetached  = "detached"
	EdgeAdopted   = "adopted"
	EdgeMerged    = "merged"
)

// Edge leads from a node to a node that derives from it.
type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`
	Kind string `json:"kind"`
}

// Picture prepares the picture of a tree.
func (g *Graph) Picture(root session.Key, o *PictureOptions) (*Picture, error) {
	opt := PictureOptions{}
	if o != nil {
		opt = *o
	}
	opt.Lines, opt.MaxSessions = cmp.Or(opt.Lines, 7), cmp.Or(opt.MaxSessions, 60)
	g.mu.Lock()
	defer g.mu.Unlock()
	all, err := g.index.rows(root, 0)
	if err != nil {
		return nil, err
	}
	timelines, _, err := g.index.timelines(root, false, opt.MaxSessions, opt.Fold)
	if err != nil {
		return nil, err
	}
	d := drawing{opt: opt, timelines: timelines, index: map[session.ID]int{}, stretches: make([][]Node, len(timelines))}
	for i, c := range timelines {
		d.index[c.info.Key.ID] = i
	}
	p := &Picture{Title: line(opt.Title, 200), Omitted: len(all) - len(timelines)}
	for i := range timelines {
		d.stretches[i] = d.cut(i)
	}
	for i := range timelines {
		p.Edges = append(p.Edges, d.edges(&g.index, i)...)
	}
	for _, s := range d.stretches {
		for _, n := range s {
			p.Nodes = append(p.Nodes, d.finish(n))
		}
	}
	p.Edges = slices.Compact(p.Edges)
	return p, nil
}

type drawing struct {
	opt       PictureOptions
	timelines []timeline
	index     map[session.ID]int
	stretches [][]Node
}

// cut divides a session's lines at forks and merges.
func (d *drawing) cut(i int) []Node {
	c := &d.timelines[i]
	name := d.name
	_, reason := c.verdict(name)
	node := func(commit uint64) Node {
		return Node{Session: c.info.Key.ID, Label: c.label, Disposition: c.info.Disposition, commit: commit}
	}
	out := []Node{node(0)}
	out[0].Title = c.title
	var last uint64
	for _, l := range c.lines {
		leaves := slices.ContainsFunc(c.until, func(at uint64) bool { return at >= last && at < l.commit && at > 0 })
		joins := slices.ContainsFunc(l.joins, func(p messages.Ref) bool { _, ok := d.index[p.Session]; return ok })
		cur := &out[len(out)-1]
		if leaves && (len(cur.Lines) > 0 || len(out) == 1) || joins && (len(cur.Lines) > 0 || cur.commit == 0) {
			out = append(out, node(l.commit))
			cur = &out[len(out)-1]
		}
		cur.Lines = append(cur.Lines, l)
		last = l.commit
	}
	for n := range out {
		out[n].ID = fmt.Sprintf("n%d_%d", i, n)
		end := ^uint64(0)
		if n+1 < len(out) {
			end = out[n+1].commit
		}
		out[n].From, out[n].To = c.versions(out[n].commit, end)
	}
	tail := &out[len(out)-1]
	tail.Last, tail.Reason = true, reason
	return out
}

func (d *drawing) name(id session.ID) string {
	if i, ok := d.index[id]; ok {
		return d.timelines[i].label
	}
	return Short(id)
}

// versions returns the version before the commits [from, to) and after them.
func (c *timeline) versions(from, to uint64) (first, last session.Version) {
	if len(c.info.Parents) == 1 {
		switch c.info.Via {
		case session.OpenFork, session.OpenImplicit, session.OpenDetach:
			first = c.info.Parents[0].Version
		}
	}
	last = first
	for i, at := range c.commits {
		if at < from {
			first = max(first, c.version[i])
		}
		if at < to {
			last = max(last, c.version[i])
		}
	}
	return first, last
}

// holds returns the stretch of a session that contains a commit.
func holds(s []Node, commit uint64) *Node {
	for i := range slices.Backward(s) {
		if s[i].commit <= commit {
			return &s[i]
		}
	}
	return &s[0]
}

func (d *drawing) edges(g *index, i int) []Edge {
	c := &d.timelines[i]
	own := d.stretches[i]
	var out []Edge
	from := func(p messages.Ref) *Node {
		j, ok := d.index[p.Session]
		if !ok {
			return nil
		}
		return holds(d.stretches[j], commitOfRef(p, g.sessions[d.timelines[j].info.Key]))
	}
	for _, p := range c.info.Parents {
		if n := from(p); n != nil && n.ID != own[0].ID {
			kind := EdgeForked
			switch c.info.Via {
			case session.OpenDetach, session.OpenCompress:
				kind = EdgeDetached
			case session.OpenMerge:
				kind = EdgeMerged
			}
			out = append(out, Edge{n.ID, own[0].ID, kind})
		}
	}
	for n := range own {
		if n > 0 {
			out = append(out, Edge{own[n-1].ID, own[n].ID, EdgeContinues})
		}
		for _, l := range own[n].Lines {
			for _, p := range l.joins {
				if s := from(p); s != nil && s.ID != own[n].ID {
					kind := EdgeMerged
					if l.Kind == messages.KindAdopted {
						kind = EdgeAdopted
					}
					out = append(out, Edge{s.ID, own[n].ID, kind})
				}
			}
		}
	}
	return out
}

// finish omits the middle of a long stretch and sets its link.
func (d *drawing) finish(n Node) Node {
	if most := d.opt.Lines; len(n.Lines) > most {
		n.Hidden = len(n.Lines) - most + 1
		head := (most - 1) / 2
		n.Lines = slices.Concat(n.Lines[:head], n.Lines[head+n.Hidden:])
	}
	if d.opt.Link != nil {
		n.Link = d.opt.Link(n.Session, n.From, n.To)
	}
	return n
}
