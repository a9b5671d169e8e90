package router

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/schema"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

const (
	// maxCandidates is how many workflows one selection shows a model. With
	// maxDescription it bounds the prompt, however many are on offer.
	maxCandidates = 64
	// maxDescription is how much of a description is shown, in bytes.
	maxDescription = 240
	// maxTopic is how much of what was said last decides which workflows are
	// shown when there are more than maxCandidates, in bytes.
	maxTopic = 4 << 10
)

// candidate is a workflow that a model may choose.
type candidate struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// menu is what one selection chooses from, as the journal keeps it: the
// registry changes, a decision that was made does not.
type menu struct {
	Candidates []candidate `json:"candidates"`
	// Offered is how many there were before those that match best were taken.
	Offered int `json:"offered"`
}

// never are the workflows that are chosen only by name: the two of this
// package would choose for ever, the others do no work that a user asks for.
var never = []string{Auto, FanOut, "demo", "demo-fleet", "fork", "merge"}

// candidates returns the workflows that may go on with a session of which
// topic was said last.
//
// They run without an input, on the session. So one that a task must give
// something to is none of them: a schema of inputs that does not accept null.
// Of more than maxCandidates those are taken whose names and descriptions match
// the topic best, by BM25, and then the first by name.
func candidates(ctx context.Context, offers Offers, in *AutoInput, topic string) (menu, error) {
	all, err := offers(ctx, in.Workflows...)
	if err != nil {
		return menu{}, err
	}
	slices.SortFunc(all, func(a, b messages.Workflow) int { return strings.Compare(a.Name+" "+a.Pool, b.Name+" "+b.Pool) })
	all = slices.CompactFunc(all, func(a, b messages.Workflow) bool { return a.Name == b.Name })
	if len(in.Workflows) > 0 {
		if all, err = named(all, in.Workflows); err != nil {
			return menu{}, err
		}
	}
	all = slices.DeleteFunc(all, func(w messages.Workflow) bool {
		return slices.Contains(never, w.Name) && !slices.Contains(in.Workflows, w.Name) || slices.Contains(in.Exclude, w.Name) || !takesNothing(w.Input)
	})
	m := menu{Offered: len(all)}
	if all, err = best(ctx, all, topic); err != nil {
		return menu{}, err
	}
	for _, w := range all {
		m.Candidates = append(m.Candidates, candidate{w.Name, excerpt.Clip(strings.Join(strings.Fields(w.Description), " "), maxDescription)})
	}
	return m, nil
}

// named returns the workflows of the given names.
func named(all []messages.Workflow, names []string) ([]messages.Workflow, error) {
	var found []messages.Workflow
	var missing []string
	for _, name := range names {
		i := slices.IndexFunc(all, func(w messages.Workflow) bool { return w.Name == name })
		switch {
		case i < 0:
			missing = append(missing, name)
		case !takesNothing(all[i].Input):
			return nil, refuse(Auto, "workflows", fmt.Sprintf("%s needs an input of its own", name), "name workflows that go on with a session: their schema accepts null")
		default:
			found = append(found, all[i])
		}
	}
	if len(missing) > 0 {
		return nil, notOffered(Auto, missing)
	}
	return found, nil
}

// takesNothing reports whether a workflow runs without an input.
func takesNothing(input json.RawMessage) bool {
	if len(input) == 0 || string(input) == "null" {
		return true
	}
	why, err := schema.Refuses(input, nil)
	return err == nil && why == ""
}

// best returns the workflows that match a topic best, at most maxCandidates,
// sorted by name.
func best(ctx context.Context, all []messages.Workflow, topic string) ([]messages.Workflow, error) {
	if len(all) <= maxCandidates {
		return all, nil
	}
	notes := notebook.New(&notebook.Options{MaxNotes: len(all)})
	const dir = "memory://resources/"
	for _, w := range all {
		words := strings.NewReplacer("_", " ", "-", " ").Replace(w.Name)
		if err := notes.Write(ctx, dir+w.Name, words+"\n"+excerpt.Clip(w.Description, 4*maxDescription), memory.Origin{}); err != nil {
			return nil, fmt.Errorf("auto: workflow %s: %w", w.Name, err)
		}
	}
	hits, err := notes.Find(ctx, memory.Query{Text: topic, Limit: maxCandidates})
	if err != nil {
		return nil, fmt.Errorf("auto: workflows that match: %w", err)
	}
	chosen := map[string]bool{}
	for _, h := range hits {
		chosen[strings.TrimPrefix(h.URI, dir)] = true
	}
	for _, w := range all {
		if len(chosen) >= maxCandidates {
			break
		}
		chosen[w.Name] = true
	}
	return slices.DeleteFunc(all, func(w messages.Workflow) bool { return !chosen[w.Name] }), nil
}

// topicOf is what was said last: the words of the user and the last answer.
func topicOf(s session.Session) string {
	user, _ := s.Last(session.User)
	return excerpt.Clip(user.Text(), maxTopic) + "\n" + excerpt.Clip(s.Text(), maxTopic)
}
