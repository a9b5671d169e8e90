package scripted

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/llm"
)

// view is the input of the conditions for one request.
type view struct {
	r                         *llm.Request
	user, tool, last          string
	results                   []string // tools that answered since the last user message
	turn, round, attempt, try int
}

func newView(r *llm.Request) *view {
	v := &view{r: r, turn: 1, round: 1, attempt: 1, try: max(r.Try, 1)}
	if i := strings.LastIndexByte(r.StepKey, '/'); i >= 0 {
		attempt, _, _ := strings.Cut(r.StepKey[i+1:], ".")
		if n, err := strconv.Atoi(attempt); err == nil {
			v.attempt = n
		}
	}
	names := map[string]string{} // tool names by call id
	for i := range r.Messages {
		m := &r.Messages[i]
		v.last = m.Text
		switch m.Role {
		case llm.User:
			v.user, v.round, v.results = m.Text, 1, nil
		case llm.Assistant:
			v.turn++
			v.round++
			for _, c := range m.Calls {
				names[c.ID] = c.Name
			}
		case llm.Tool:
			v.tool = m.Text
			name := m.Name
			if name == "" {
				name = names[m.CallID]
			}
			v.results = append(v.results, name)
		}
	}
	return v
}

func (c *cond) holds(v *view) bool { return c.look(v) != c.Not }

func (c *cond) look(v *view) bool {
	switch c.Key {
	case keyModel:
		return v.r.Provider.Model == c.Value
	case keySystem, keyContains:
		return slices.ContainsFunc(v.r.Messages, func(m llm.Message) bool {
			return (m.Role == llm.System) == (c.Key == keySystem) && strings.Contains(m.Text, c.Value)
		})
	case keyUser:
		return strings.Contains(v.user, c.Value)
	case keyTool:
		return strings.Contains(v.tool, c.Value)
	case keyLast:
		return strings.Contains(v.last, c.Value)
	case keyResult:
		return slices.Contains(v.results, c.Value)
	case keyOffers:
		return slices.ContainsFunc(v.r.Tools, func(t llm.ToolSpec) bool { return t.Name == c.Value })
	}
	n, err := strconv.Atoi(c.Value)
	if err != nil {
		return false
	}
	switch c.Key {
	case keyTurn:
		return v.turn == n
	case keyRound:
		return v.round == n
	case keyAttempt:
		return v.attempt == n
	case keyTry:
		return v.try == n
	}
	return false
}

// find returns the index of the first rule that matches. allow is called last; it may
// reject a rule that has answered often enough. misses has the reason of each rule that
// does not match.
func (s *Script) find(v *view, allow func(i int) bool) (i int, misses []string) {
rules:
	for i := range s.rules {
		r := &s.rules[i]
		for j := range r.When {
			if c := &r.When[j]; !c.holds(v) {
				not := "not "
				if c.Not {
					not = ""
				}
				misses = append(misses, fmt.Sprintf("%s (%s%s %q)", r.Name, not, c.Key, llm.Clip(c.Value, 40)))
				continue rules
			}
		}
		if r.Times > 0 && !allow(i) {
			misses = append(misses, fmt.Sprintf("%s (has answered %d times)", r.Name, r.Times))
			continue
		}
		return i, nil
	}
	return -1, misses
}

// noRule is the error for a request that no rule answers.
func (s *Script) noRule(v *view, misses []string) *llm.Error {
	role := "none"
	if n := len(v.r.Messages); n > 0 {
		role = string(v.r.Messages[n-1].Role)
	}
	if len(misses) > 6 {
		misses = append(misses[:5:5], fmt.Sprintf("and %d more", len(misses)-5))
	}
	return &llm.Error{Code: llm.CodeInvalidRequest, Status: 400, Message: fmt.Sprintf(
		"script %s has no rule for turn %d, whose last message is (%s) %q; rules: %s",
		s.Name, v.turn, role, llm.Clip(v.last, 100), strings.Join(misses, ", "))}
}
