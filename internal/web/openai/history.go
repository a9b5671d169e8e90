package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/web/turn"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// head is the newest point of a conversation that a run of the caller has recorded.
type head struct {
	run     run.ID
	session session.ID
	version session.Version   // zero while the run is open
	newest  bool              // the session has no later version
	asks    []messages.Wait   // of an open run
	info    *messages.RunInfo // of an open run
	next    int               // the first row of the client behind it
	// after is the question after which text begins, and text the recorded text from there.
	after run.Path
	text  string
}

const (
	// maxHeads bounds the answers of a history, from its end, whose runs are sought, and
	// maxFound the runs that are compared.
	maxHeads, maxFound = 16, 32
	// tailRows is the number of rows that are read at a time from the end of a session,
	// and maxTail the number of rows of one run's text.
	tailRows, maxTail = 64, 4096
)

// find returns the newest point of the client's history that agrees with a run of the
// caller, nil for none.
func find(ctx context.Context, q *request) (*head, error) {
	last := q.answerAt()
	if last < 1 {
		return nil, nil
	}
	heads := q.heads()
	ids := chains(q.rows, heads)
	if h, err := q.tryHead(ctx, ids[0], heads[last], last); h != nil || err != nil {
		return h, err
	}
	tasks := make([]messages.Task, 0, len(ids))
	for _, id := range ids[1:] {
		tasks = append(tasks, messages.Task{ID: id})
	}
	known, err := q.caller.Client.Known(ctx, q.workflow.Name, tasks)
	if err != nil {
		return nil, err
	}
	for i := range known {
		if known[i] == nil {
			continue
		}
		if h, err := q.tryHead(ctx, tasks[i].ID, heads[last], last); h != nil || err != nil {
			return h, err
		}
	}
	return q.search(ctx, heads)
}

// chains returns the ids that the run of the last answer has if each run since an answer
// continued the session of the one before: since the first answer, and since the last ones.
func chains(rows []row, heads []string) (ids []run.ID) {
	for i, r := range rows {
		if r.Role != roleAssistant || i == 0 {
			continue
		}
		for k := range ids {
			ids[k] = nextID(ids[k])
		}
		if ids = append(ids, firstID(heads[i], 0)); len(ids) > maxHeads {
			ids = slices.Delete(ids, 1, 2)
		}
	}
	return ids
}

// tryHead returns the head of a run if the run is the caller's own and the last answer is
// its text, and else nil.
func (q *request) tryHead(ctx context.Context, id run.ID, tag string, at int) (*head, error) {
	h, err := q.headOf(ctx, id)
	if h == nil || err != nil {
		return nil, err
	}
	if h.next = h.agrees(q.rows, at); h.next == 0 {
		return nil, nil
	}
	info, err := q.caller.Client.Runs.Get(ctx, id)
	if err != nil || info.By != q.caller.User || info.Workflow != q.workflow.Name || info.Tags[tagHead] != tag {
		return nil, err
	}
	return h, nil
}

// search finds the head by the tags of runs, which takes longer.
func (q *request) search(ctx context.Context, heads []string) (*head, error) {
	at := map[string]int{}
	var values []string
	for i := len(q.rows) - 1; i > 0 && len(values) < maxHeads; i-- {
		if q.rows[i].Role == roleAssistant && at[heads[i]] == 0 {
			at[heads[i]] = i
			values = append(values, heads[i])
		}
	}
	found, err := q.caller.Client.Runs.List(ctx, &client.RunsOptions{
		By: q.caller.User, Workflow: q.workflow.Name, Limit: maxFound, Where: fmt.Sprintf("tag.%s in (%s)", tagHead, strings.Join(values, ", ")),
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(found, func(a, b messages.RunInfo) int { return at[b.Tags[tagHead]] - at[a.Tags[tagHead]] })
	for i := range found {
		h, err := q.headOf(ctx, found[i].Run)
		if err != nil {
			return nil, err
		}
		if h == nil {
			continue
		}
		if h.next = h.agrees(q.rows, at[found[i].Tags[tagHead]]); h.next > 0 {
			return h, nil
		}
	}
	return nil, nil
}

// headOf returns the head of a run, nil for one that works, ended without a row, is archived
// or does not exist.
func (q *request) headOf(ctx context.Context, id run.ID) (*head, error) {
	h, err := headOf(ctx, q.caller, id, "")
	if errors.Is(err, run.ErrState) || errors.Is(err, session.ErrNotFound) || errors.Is(err, session.ErrArchived) || errors.Is(err, run.ErrUnknownRun) {
		return nil, nil
	}
	return h, err
}

// headOf reads the state of a run: it has ended, or it waits for a person, and otherwise it
// is run.ErrState.
func headOf(ctx context.Context, c *access.Caller, id run.ID, after run.Path) (*head, error) {
	h := &head{run: id, after: after}
	result, err := c.Client.Runs.Result(ctx, id)
	switch {
	case err == nil:
		if h.session, h.version = result.Session, result.Version; result.Version == 0 {
			return nil, fmt.Errorf("run %s ended without a session: %w", id, session.ErrNotFound)
		}
	case errors.Is(err, run.ErrState):
		info, notKnown := c.Client.Runs.Get(ctx, id)
		if notKnown != nil {
			return nil, notKnown
		}
		if h.info, h.session, h.asks = &info, info.Session, turn.Asked(info.Waits); len(h.asks) == 0 {
			return nil, err
		}
	default:
		return nil, err
	}
	h.text, err = textOfRun(ctx, c, h)
	return h, err
}

// textOfRun reads the text of a run from the end of its session.
func textOfRun(ctx context.Context, c *access.Caller, h *head) (string, error) {
	rows, err := rowsOfRun(ctx, c, h)
	return turn.Text(h.run, h.after, rows), err
}

// rowsOfRun reads the rows of a run, and those after them, from the end of its session up to
// the version of the head. It sets whether that is the newest one.
func rowsOfRun(ctx context.Context, c *access.Caller, h *head) ([]messages.Chunk, error) {
	s, err := page(ctx, c, string(h.session), 0, tailRows)
	if err != nil {
		return nil, err
	}
	h.newest = s.Version == h.version && s.Closed == ""
	own := func(r messages.Chunk) bool { return r.Run == string(h.run) }
	rows := s.Chunks
	if s.Next > 0 {
		rows = nil
		for to := s.Total; to > 0 && len(rows) < maxTail && slices.IndexFunc(rows, own) <= 0; to -= tailRows {
			p, err := page(ctx, c, string(h.session), max(to-tailRows, 0), min(to, tailRows))
			if err != nil {
				return nil, err
			}
			rows = append(slices.Clone(p.Chunks), rows...)
		}
	}
	return slices.DeleteFunc(rows, func(r messages.Chunk) bool { return h.version > 0 && r.Session == h.session && r.Version > h.version }), nil
}

// agrees returns the number of the first row behind the answers that are the text of the
// run, whose first answer is at a row; zero if they are not.
func (h *head) agrees(rows []row, at int) (next int) {
	text := ""
	for i := at; i < len(rows); i++ {
		if rows[i].Role != roleAssistant {
			continue
		}
		part, asked := cutQuestion(rows[i].Text)
		if _, after, void := strings.Cut(part, turn.Replaced); void {
			part = after
		}
		text = turn.Join(text, part)
		switch {
		case text == h.text, asked && strings.HasPrefix(h.text, text) && h.asks == nil:
			next = i + 1
		case !strings.HasPrefix(h.text, text):
			return next
		}
	}
	return next
}

// asksIn begins the text of a question at the end of an answer.
const asksIn = "[Rath waits for "

// askText returns the text of a question, with the address that answers it. A wait for the
// next message of a conversation has none.
func (d *Door) askText(c *access.Caller, id run.ID, w *messages.Wait) string {
	if w.Kind == run.WaitMessage {
		return ""
	}
	text := asksIn + w.Kind + "] " + w.Title
	if w.Wants != "" {
		text += " (" + w.Wants + ")"
	}
	at := fmt.Sprintf("%s/t/%s/questions/%s/%s", d.url, c.Tenant, id, w.Step)
	if w.Kind == run.WaitResponse {
		return text + "\nReply with the answer, or give it at " + at
	}
	return text + "\nAnswer at " + at
}

// cutQuestion returns a text without the question at its end.
func cutQuestion(text string) (before string, asked bool) {
	i := strings.LastIndex(text, asksIn)
	if i < 0 {
		return text, false
	}
	return strings.TrimSuffix(text[:i], turn.Separator), true
}

// questionIn returns the question at the end of a text, by its address.
func questionIn(text string) (id run.ID, step run.Path, ok bool) {
	if _, asked := cutQuestion(text); !asked {
		return "", "", false
	}
	parts := strings.Split(text[strings.LastIndex(text, "/questions/")+1:], "/")
	if len(parts) != 3 || session.ValidID("run", parts[1]) != nil {
		return "", "", false
	}
	return run.ID(parts[1]), run.Path(parts[2]), true
}

// page reads rows of a session, the oldest first.
func page(ctx context.Context, c *access.Caller, ref string, from, limit int) (p messages.Session, err error) {
	data, err := c.Client.Query(ctx, messages.QuerySession, wire.Query{Session: ref, After: uint64(from), Limit: limit})
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	return p, err
}
