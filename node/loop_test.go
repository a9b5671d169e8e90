package node

import (
	"context"
	"errors"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// talking has a workflow that hears messages in a loop until "bye", and fails at "fail".
func talking() []flow.Registration {
	return []flow.Registration{{Name: "talk", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			var heard struct{ Words []string }
			s, err := flow.Loop(ctx, "talk", s, &heard, func(ctx context.Context, s session.Session) (session.Session, bool, error) {
				s, err := flow.Listen(ctx, s, nil)
				if err != nil {
					return s, false, err
				}
				last, _ := s.Last(session.User)
				word, err := flow.Do(ctx, "hear", func(context.Context) (string, error) {
					if last.Text() == "fail" {
						return "", flow.Permanent(errors.New("it fails"))
					}
					return last.Text(), nil
				}, tool.Idempotent)
				heard.Words = append(heard.Words, word)
				return s, word != "bye", err
			})
			return s.With(session.AssistantText(strings.Join(heard.Words, " "))), err
		})
	}}}
}
