package dossier

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/lineage"
)

// markdown renders the Markdown form; text is the encoded evidence, packed if it is
// compressed.
func markdown(_ *Evidence, f *Facts, text []byte, packed bool) ([]byte, error) {
	m := marker{f: f}
	m.first()
	m.branches()
	m.timeline()
	m.rest()
	// As in the page, characters that are still hidden are made visible.
	begin := markBegin
	if packed {
		begin = markPacked
	}
	out := visible(m.b.String()) + "\n" + begin + string(text) + markEnd + "\n"
	return []byte(out), nil
}

// marker writes Markdown. Texts of the run are always in code spans and fenced blocks,
// where they cannot be markup, notify a user or become a link.
type marker struct {
	b strings.Builder
	f *Facts
}

func (m *marker) put(format string, args ...any) { fmt.Fprintf(&m.b, format, args...) }

// code writes a text of the run as a code span of one line.
func code(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if s == "" {
		return ""
	}
	fence := strings.Repeat("`", longest(s, '`')+1)
	if len(fence) > 1 || strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		return fence + " " + s + " " + fence
	}
	return fence + s + fence
}

// cell is code for a cell of a table, where a bar ends the cell even inside a code span.
func cell(s string) string { return strings.ReplaceAll(code(s), "|", `\|`) }

// longest returns the length of the longest run of a character.
func longest(s string, c byte) int {
	best, n := 0, 0
	for i := range len(s) {
		if n++; s[i] != c {
			n = 0
		}
		best = max(best, n)
	}
	return best
}

// block writes a text as a fenced block that the text cannot end.
func (m *marker) block(lang, s string) {
	fence := strings.Repeat("`", max(longest(s, '`')+1, 3))
	m.put("%s%s\n%s\n%s\n", fence, lang, strings.TrimSuffix(s, "\n"), fence)
}

// link returns a link to a line of the timeline.
func (m *marker) link(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("[step %d](#t%d)", n, n)
}

func (m *marker) links(steps []int) string {
	var out []string
	for _, n := range steps {
		out = append(out, m.link(n))
	}
	return strings.Join(out, ", ")
}

func (m *marker) first() {
	f := m.f
	m.put("# %s %s\n\n", mark(f.State), word(f.State))
	m.put("**%s**\n\n", code(f.Verdict))
	m.put("Dossier of run %s, workflow %s, session %s\n\n", code(string(f.Run)), cmp.Or(code(f.Workflow), "unknown"), code(string(f.Tenant)+"/"+string(f.Home)))
	if !f.Asked.Empty() {
		m.put("Asked: %s\n\n", code(clip(f.Asked.Shown, 300)))
	}
	if !f.Answer.Empty() {
		m.put("Answered: %s\n\n", code(clip(f.Answer.Shown, 300)))
	}
	n := f.Numbers
	if c := f.Changes; len(c.Files) > 0 {
		m.put("Changed: %s, +%d −%d\n\n", excerpt.Counted(len(c.Files)+c.More, "file"), c.Add, c.Remove)
	} else {
		m.put("Changed: nothing. %s\n\n", c.Note)
	}
	for _, d := range answered(f.Decisions) {
		m.put("Decided: %s: %s, %s\n\n", cmp.Or(code(d.By), "no name"), code(d.What), m.link(d.Step))
	}
	m.put("| took | USD | tokens | model calls | tool calls | sessions |\n|---:|---:|---:|---:|---:|---:|\n| %s | %s | %s | %s | %s | %s |\n\n",
		lasted(f.Took), cost(n.MicroUSD), excerpt.Thousands(n.Tokens), excerpt.Thousands(n.ModelCalls), excerpt.Thousands(n.ToolCalls), excerpt.Thousands(n.Sessions))
	if len(f.Changes.Files) > 0 {
		m.put("## Adopted changes\n\n")
	}
	for _, file := range f.Changes.Files {
		m.file(file)
	}
	if f.Changes.More > 0 {
		m.put("%s changed.\n\n", excerpt.Counted(f.Changes.More, "more file"))
	}
	if len(f.Rejections) > 0 {
		m.put("## Not taken\n\n")
	}
	for _, u := range alike(f.Rejections) {
		var labels []string
		for _, r := range u.Of {
			labels = append(labels, r.Label)
		}
		m.put("- %s %s **%s**, %s: %s\n", code(strings.Join(labels, ", ")), mark(u.State), code(u.State), cmp.Or(m.link(u.Step), "no step"), cmp.Or(code(u.Reason), "no reason is recorded"))
	}
	if f.Picture != nil && len(f.Picture.Nodes) > 1 {
		m.put("\n## Sessions and branches\n\n")
		m.block("mermaid", f.Picture.Mermaid())
		m.put("\n")
	}
	m.spent()
}

// spent writes the table of time, tokens and cost.
func (m *marker) spent() {
	if len(m.f.Spent) == 0 {
		return
	}
	m.put("## Where the time, the tokens and the money went\n\n| agent | model or tool | calls | failed | time | tokens in | tokens out | USD |\n|---|---|---:|---:|---:|---:|---:|---:|\n")
	for _, s := range m.f.Spent {
		m.put("| %s | %s | %s | %s | %s | %s | %s | %s |\n", cmp.Or(cell(s.Agent), "workflow"), cell(s.On()), excerpt.Thousands(s.Calls),
			excerpt.Thousands(s.Failed), lasted(s.Elapsed), excerpt.Thousands(s.Usage.Input), excerpt.Thousands(s.Usage.Output), cost(s.Usage.MicroUSD))
	}
	if m.f.Waited > 0 {
		m.put("| run | waited for people, timers and branches | | | %s | | | |\n", lasted(m.f.Waited))
	}
	if source := lineage.CostText(m.f.Spent); source != "" {
		m.put("\nUSD: %s.\n", source)
	}
	m.put("\n")
}

func (m *marker) file(file FileChange) {
	m.put("### %s %s, +%d −%d\n\n", code(file.Path), file.Kind, file.Add, file.Remove)
	if file.Note != "" {
		m.put("%s\n\n", code(file.Note))
	}
	if len(file.Hunks) == 0 && len(file.Steps) > 0 {
		m.put("By %s\n\n", m.links(file.Steps))
	}
	for _, h := range file.Hunks {
		made := "no step of this run made it"
		if len(h.Steps) > 0 {
			last := by(h.Steps)
			made = "by " + m.links(last.Steps)
			if last.More > 0 {
				made += " and " + excerpt.Counted(last.More, "more step")
			}
			if s := m.f.step(h.Steps[0]); s != nil && len(h.Steps) == 1 {
				made += " " + code(s.Actor+" "+s.Text)
			}
		}
		m.put("%s %s\n\n", code(h.Header), made)
		var b strings.Builder
		for _, l := range h.Lines {
			b.WriteString(l.Op + l.Text + "\n")
		}
		m.block("diff", b.String())
		m.put("\n")
	}
}

// branches lists the branches of fan-outs, if there are any.
func (m *marker) branches() {
	if len(m.f.Branches) == 0 {
		return
	}
	m.put("\n## Branches\n\n| branch | session | its run | for the run that opened it | worked on | tokens | opened |\n|---|---|---|---|---|---:|---|\n")
	for _, b := range m.f.Branches {
		name := cell(b.Name)
		if b.Workflow != "" {
			name += ", workflow " + cell(b.Workflow)
		}
		end := "not decided"
		if b.End != "" {
			end = strings.TrimSpace(mark(b.End) + " " + cell(b.End) + " " + cell(b.Reason))
		}
		m.put("| %s | %s %s | %s %s | %s | %s | %s | %s |\n", name, cell(b.Label), cell(string(b.Session)), mark(b.State), cell(string(b.State)), end,
			cmp.Or(cell(strings.Join(b.Nodes, ", ")), "no node"), excerpt.Thousands(b.Tokens), m.link(b.Step))
	}
	m.put("\n")
}

func (m *marker) timeline() {
	m.put("## Timeline\n\n")
	if t := when(m.f.Submitted); t != "" {
		by := cell(m.f.Submitter())
		if by != "" {
			by = " " + by
		}
		m.put("Submitted %s%s. ", t, by)
	}
	if t := when(m.f.Ended); t != "" {
		m.put("Ended %s. ", t)
	}
	m.put("A call and its result are one line.\n\n")
	m.put("| step | session | who | what | effect | attempts | head before → after | took | commit |\n|---:|---|---|---|---|---|---|---:|---|\n")
	for i := range m.f.Steps {
		s := &m.f.Steps[i]
		what := cell(s.Text)
		if s.Child {
			what = "↳ " + what
		}
		if s.Finish != "" {
			what += " " + cell(s.Finish)
		}
		if s.Code != "" {
			what += " ✕ " + cell(string(s.Code))
		}
		if s.Late {
			what += " superseded, not counted"
		}
		if s.Open {
			what += " ! no outcome recorded"
		}
		heads := ""
		if !s.Before.IsZero() || !s.After.IsZero() {
			heads = cell(shortDigest(s.Before)) + " → " + cell(shortDigest(s.After))
		}
		elapsed := ""
		if s.Elapsed > 0 {
			elapsed = took(s.Elapsed)
		}
		m.put("| <a id=\"t%d\"></a>%d | %s | %s | %s | %s | %s | %s | %s | %d %s |\n",
			s.N, s.N, cell(s.Label), cell(s.Actor), what, cell(s.Effect), cell(attempts(s)), heads, elapsed, s.Commit, cell(shortDigest(s.Hash)))
	}
	m.put("\n### Transcript\n\n")
	for i := range m.f.Steps {
		s := &m.f.Steps[i]
		if s.Body.Empty() && s.Args.Empty() && s.Error.Empty() && len(s.Images) == 0 {
			continue
		}
		m.put("%s %s %s\n\n", m.link(s.N), code(s.Label), code(s.Actor))
		for _, part := range []struct {
			name string
			t    Text
		}{{"called with", s.Args}, {"error", s.Error}, {"text", s.Body}} {
			if part.t.Empty() {
				continue
			}
			m.put("%s:\n\n", part.name)
			m.block("text", part.t.Shown)
			if part.t.More > 0 {
				m.put("%s in the commit.\n", excerpt.Counted(part.t.More, "more character"))
			}
			m.put("\n")
		}
		for _, i := range s.Images {
			m.put("image: %s\n\n", code(i.String()))
		}
	}
}

// instructions writes the texts that models received in addition to the rows.
func (m *marker) instructions(all []Instruction) {
	if len(all) > 0 {
		m.put("\n## Instructions to models\n\nEach text once, by the SHA-256 of its bytes. Credentials are masked.\n")
	}
	for _, p := range all {
		m.put("\n- %s of %s, `%s`, steps %s\n\n", p.What, cmp.Or(code(p.Agent), "no agent"), p.Digest, m.links(p.Steps))
		if p.Left != "" {
			m.put("Not included: %s.\n", code(p.Left))
			continue
		}
		m.block("text", p.Text.Shown)
		if p.Text.More > 0 {
			m.put("%s in the blob.\n", excerpt.Counted(p.Text.More, "more character"))
		}
	}
}

func (m *marker) rest() {
	f := m.f
	if len(f.Decisions)+len(f.Warnings) > 0 {
		m.put("## Approvals and decisions\n\n")
	}
	for _, d := range f.Decisions {
		by := ""
		if d.By != "" {
			by = ", by " + code(d.By)
		}
		m.put("- %s %s%s: %s\n", m.link(d.Step), code(d.What), by, cmp.Or(code(d.Reason), "no reason is recorded"))
	}
	for _, w := range f.Warnings {
		m.put("\n! Warning: %s\n", code(w.Shown))
	}
	if len(f.Memory) > 0 {
		m.put("\n## Memory read and written\n\n")
	}
	for _, u := range f.Memory {
		verb := "read from"
		if u.Write {
			verb = "wrote to"
		}
		m.put("- %s %s %s", m.link(u.Step), verb, code(u.Name))
		if u.Error != "" {
			m.put(" ✕ %s", code(u.Error))
		} else if len(u.Notes)+len(u.Withheld) == 0 {
			m.put(": no note was found")
		}
		m.put("\n")
		for _, n := range u.Notes {
			m.put("  - %s %s\n", code(n.URI), code(n.Text))
		}
		for _, l := range u.Withheld {
			m.put("  - withheld: %s\n", code(l))
		}
	}
	m.instructions(f.Instructions)
	if len(f.Prompts) > 0 {
		m.put("\n## Requests\n\n| SHA-256 of the rendered request | answered by | steps |\n|---|---|---|\n")
	}
	for _, p := range f.Prompts {
		m.put("| `%s` | %s | %s |\n", p.Digest, cmp.Or(cell(p.Model), "no model"), m.links(p.Steps))
	}
	m.put("\n## Sessions and their hash chains\n\n| session | id | came from | ended | commits | head of the chain |\n|---|---|---|---|---:|---|\n")
	for _, s := range f.Sessions {
		m.put("| %s %s | %s | %s | %s %s %s | %d | `%s` |\n", cell(s.Label), s.Role, cell(string(s.ID)), cmp.Or(cell(s.From), "nothing"),
			mark(s.State), cell(s.State), cell(s.Reason), s.Commits, s.Last)
	}
	m.put("\n## Environment and durability\n\nFrom the commits:\n\n")
	for _, e := range f.Environment {
		m.put("- %s: %s\n", code(e.Name), code(e.Value))
	}
	m.put("\n**Stated by the exporter, not provable from the commits:**\n\n")
	for _, s := range f.Stated {
		m.put("- %s: %s\n", code(s.Name), code(s.Value))
	}
	if len(f.Stated) == 0 {
		m.put("None: neither release nor model provider.\n")
	}
	m.put("\n## Limits of this evidence\n\n")
	for _, l := range f.limits() {
		m.put("- %s\n", l)
	}
	for _, l := range f.Omitted {
		m.put("- %s\n", code(l))
	}
	if len(f.Signed) > 0 {
		m.put("\n## Signatures\n\nEach is over the hash of the commit that ended the run, which stands for all commits before it in the home session and for each commit that these refer to. " +
			"Your own list of signers decides which keys count.\n\n| key | signed commit | its hash |\n|---|---|---|\n")
		for _, s := range f.Signed {
			m.put("| `%s` | %d of %s | `%s` |\n", s.Key, s.Commit, cell(string(s.Session)), s.Head)
		}
		m.put("\n    %s\n", signersCommand)
	}
	m.put("\n## How to check this file\n\nThe stored bytes of every commit are inside it, in a comment at its end, so no server is needed. "+
		"This recomputes all hash chains, references and digests, renders the file again and compares it byte for byte. "+
		"Take the hash after `--head` from somewhere else than this file:\n\n    rath verify --head %s FILE\n", f.Sessions[0].Last)
}
