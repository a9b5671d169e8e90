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
	// maxCandidates is the maximum number of workflows that one selection shows a model. With
	// maxDescription it bounds the prompt, however many are offered.
	maxCandidates = 64
	// maxDescription is the length of the shown part of a description, in bytes.
	maxDescription = 240
	// maxTopic is the length, in bytes, of the latest messages that decide which workflows
	// are shown if there are more than maxCandidates.
	maxTopic = 4 << 10
)

// candidate is a workflow that a model may choose.
type candidate struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// menu is the list of one selection, as the journal stores it: the registry changes, a past
// decision does not.
type menu struct {
	Candidates []candidate `json:"candidates"`
	// Offered is the number of workflows before the selection of the best matches.
	Offered int `json:"offered"`
}

// never are the workflows that are chosen only by name: the two of this
// package would choose for ever, the others do no work that a user asks for.
var never = []string{Auto, FanOut, "demo", "demo-fleet", "fork", "merge"}

// candidates returns the workflows that may continue a session with this topic.
//
// They run on the session, without an input. A workflow whose input schema does not accept
// null is therefore no candidate. If there are more than maxCandidates, the names and
// descriptions that match the topic best are selected, by BM25, and then by name.
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
			return nil, refuse(Auto, "workflows", fmt.Sprintf("%s needs its own input", name), "name workflows that can continue a session: their schema accepts null")
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

// topicOf returns the latest messages: the user's words and the last answer.
func topicOf(s session.Session) string {
	user, _ := s.Last(session.User)
	return excerpt.Clip(user.Text(), maxTopic) + "\n" + excerpt.Clip(s.Text(), maxTopic)
}
