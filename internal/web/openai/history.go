package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	version session.Version // zero while the run is open
	now     session.Version // the newest one of the session; zero if it is closed
	asks    []messages.Wait // of an open run
	info    messages.RunInfo
	next    int // the first row of the client behind it
	// after is the version after which text begins; zero is the beginning of the run.
	after session.Version
	text  string // the recorded one
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
	if h == nil || err != nil || h.info.By != q.caller.User || h.info.Workflow != q.workflow.Name || h.info.Tags[tagHead] != tag {
		return nil, err
	}
	if h.next = h.agrees(q.rows, at); h.next == 0 {
		return nil, nil
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
	h, err := headOf(ctx, q.caller, id, 0)
	if errors.Is(err, run.ErrState) || errors.Is(err, session.ErrNotFound) || errors.Is(err, session.ErrArchived) || errors.Is(err, run.ErrUnknownRun) {
		return nil, nil
	}
	return h, err
}

// headOf reads the state of a run: it has ended, or it waits for a person, and otherwise it
// is run.ErrState.
func headOf(ctx context.Context, c *access.Caller, id run.ID, after session.Version) (*head, error) {
	h := &head{run: id, after: after}
	result, err := c.Client.Runs.Result(ctx, id)
	if err != nil && !errors.Is(err, run.ErrState) {
		return nil, err
	}
	open := err
	if h.info, err = infoOf(ctx, c, id); err != nil {
		return nil, err
	}
	switch h.session, h.version = result.Session, result.Version; {
	case open == nil && result.Version == 0:
		return nil, fmt.Errorf("run %s ended without a session: %w", id, session.ErrNotFound)
	case open != nil:
		if h.session, h.asks = h.info.Session, turn.Asked(h.info.Waits); len(h.asks) == 0 {
			return nil, open
		}
	}
	h.text, err = h.read(ctx, c)
	return h, err
}

const (
	// lineageWithin is how long a request waits until the lineage has a run that it follows,
	// and lineageAgain the first pause between two checks; each further one is twice as long.
	lineageWithin, lineageAgain = 2 * time.Second, 5 * time.Millisecond
)

// infoOf reads a run once the lineage has its first claim.
func infoOf(ctx context.Context, c *access.Caller, id run.ID) (info messages.RunInfo, err error) {
	began := time.Now()
	for pause := lineageAgain; ; pause *= 2 {
		info, err = c.Client.Runs.Get(ctx, id)
		if err != nil || info.Started > 0 || time.Since(began) > lineageWithin {
			return info, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return info, ctx.Err()
		}
	}
}

// read reads the text of a run from the end of its session.
func (h *head) read(ctx context.Context, c *access.Caller) (string, error) {
	rows, err := h.rows(ctx, c)
	return turn.Text(rows), err
}

// rows reads the rows that a run has added after a version, from the end of its session up to
// the version of the head. It sets the newest one.
func (h *head) rows(ctx context.Context, c *access.Caller) ([]messages.Chunk, error) {
	s, err := page(ctx, c, string(h.session), 0, tailRows)
	if err != nil {
		return nil, err
	}
	rows := s.Chunks
	if s.Closed == "" {
		h.now = s.Version
	}
	if s.Next > 0 {
		rows = nil
		for to := s.Total; rows == nil || to > 0 && len(rows) < maxTail && turn.Begin(h.run, h.info.Started, rows) == 0; to -= tailRows {
			p, err := page(ctx, c, string(h.session), max(to-tailRows, 0), min(to, tailRows))
			if err != nil {
				return nil, err
			}
			rows = append(slices.Clone(p.Chunks), rows...)
		}
	}
	rows = rows[turn.Begin(h.run, h.info.Started, rows):]
	return slices.DeleteFunc(rows, func(r messages.Chunk) bool {
		return r.Session == h.session && (h.version > 0 && r.Version > h.version || r.Version <= h.after)
	}), nil
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
