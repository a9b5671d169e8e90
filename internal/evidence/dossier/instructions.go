package dossier

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/journal"
)

// listed adds the parts of the instructions that the steps name, except the notes of a
// recall, which are shown with its step.
func (t *timeline) listed() error {
	for i := range t.f.Steps {
		s := &t.f.Steps[i]
		if s.Given.IsZero() {
			continue
		}
		data, _, err := t.a.shelf(s.Given)
		if err != nil {
			return err
		}
		list, ok := journal.ReadInstructions(data)
		if !ok { // missing
			t.instruction(s, Instruction{Digest: s.Given, What: "list"})
		}
		for _, part := range []struct {
			what   string
			digest blob.Digest
		}{{"prompt", list.Prompt}, {"tools", list.Tools}, {"question", list.Ask}, {"remark", list.Remark}} {
			t.instruction(s, Instruction{Digest: part.digest, What: part.what})
		}
	}
	return nil
}

func (t *timeline) instruction(s *Step, part Instruction) {
	if part.Digest.IsZero() {
		return
	}
	s.Told = append(s.Told, Told{part.What, part.Digest})
	for i := range t.f.Instructions {
		if p := &t.f.Instructions[i]; p.Digest == part.Digest && p.What == part.What {
			p.Steps = append(p.Steps, s.N)
			return
		}
	}
	part.Steps, part.Agent = []int{s.N}, s.Agent
	t.f.Instructions = append(t.f.Instructions, part)
}

// instructed fills in the texts of the instructions.
func (t *timeline) instructed() error {
	if err := t.listed(); err != nil {
		return err
	}
	for i := range t.f.Instructions {
		p := &t.f.Instructions[i]
		data, why, err := t.a.shelf(p.Digest)
		if err != nil {
			return err
		}
		if p.Left = why; why != "" {
			t.left = append(t.left, fmt.Sprintf("the %s of step %d, blob %s: %s", p.What, p.Steps[0], p.Digest.Short(), why))
			continue
		}
		if p.Text = textOf(string(data)); p.What == "tools" {
			p.Text = textOf(tableText(data))
		}
	}
	return nil
}

// tableText formats a table of tools for display, and returns other bytes unchanged.
func tableText(data []byte) string {
	var table []struct {
		Name, Description string
		Schema            json.RawMessage
	}
	if json.Unmarshal(data, &table) != nil {
		return string(data)
	}
	var b strings.Builder
	for _, t := range table {
		fmt.Fprintf(&b, "%s\n", t.Name)
		for _, text := range []string{t.Description, string(t.Schema)} {
			if text = strings.TrimSpace(text); text != "" {
				fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(text, "\n", "\n  "))
			}
		}
	}
	return b.String()
}
