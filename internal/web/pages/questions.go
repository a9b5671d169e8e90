package pages

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/core/form"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// question is an open question, or a run that needs review.
type question struct {
	messages.Wait
	Info   *messages.RunInfo
	Href   string
	Soon   bool // less than a day is left
	Chosen bool

	asked    *client.Question
	Call     *session.ToolCall
	Detail   string
	Schema   json.RawMessage
	Choices  []string // the values of an enumeration
	Diffs    []fileDiff
	DiffNote string
	Patch    string // of the tool that applies one
	Broken   string // why the call cannot be shown
	Digest   string // of all that is shown
	Hidden   int    // characters that are shown as escapes
	Alike    []*question
	Earlier  []earlier // answers to questions of this kind
	Edited   string    // the value of a form that was sent back
	ReasonIn string
	Verb     string // that answers it
}

type fileDiff struct {
	Path           string
	Added, Removed int
	Hunks          []manifest.Hunk
	Note           string
}

type questionsPage struct {
	List  []*question
	Asked *question
	Next  *question
	Item  bool // one question was named: a narrow window shows it alone
}

func questionHref(v *visit, id run.ID, w messages.Wait) string {
	return v.base() + "/questions/" + string(id) + "/" + url.PathEscape(cmp.Or(string(w.Step), "-"))
}

// openQuestions returns the open questions, those with the least time left first.
func openQuestions(v *visit) ([]*question, error) {
	runs, err := v.Client.Runs.List(v.ctx, &client.RunsOptions{States: []run.State{run.Waiting, run.NeedsReview}, Limit: openRuns})
	if err != nil {
		return nil, err
	}
	var out []*question
	for i := range runs {
		if !v.Own(&runs[i]) {
			continue
		}
		for _, w := range asksOf(&runs[i]) {
			q := &question{Wait: w, Info: &runs[i], Href: questionHref(v, runs[i].Run, w)}
			q.Soon = w.Due > 0 && time.UnixMilli(w.Due).Sub(v.now) < 24*time.Hour
			q.Verb = map[string]string{run.WaitApproval: messages.VerbApprove, run.WaitResponse: messages.VerbRespond, run.WaitMessage: messages.VerbMessage, waitReview: messages.VerbResolve}[w.Kind]
			out = append(out, q)
		}
	}
	slices.SortStableFunc(out, func(a, b *question) int {
		never := func(q *question) int64 { return cmp.Or(q.Due, 1<<62) }
		return cmp.Or(cmp.Compare(never(a), never(b)), cmp.Compare(a.Info.Submitted, b.Info.Submitted))
	})
	return out, nil
}

// Head is the sentence of a question in the list.
func (q *question) Head() string {
	switch {
	case q.Kind == waitReview && q.Name != "":
		return "Did the call “" + q.Name + "” happen?"
	case q.Kind == waitReview:
		return "How does the run go on?"
	case q.Kind == run.WaitMessage:
		return "It listens for a message"
	}
	return cmp.Or(q.Title, q.Name, "It asks for "+q.Kind)
}

func (v *visit) questions() error { return showQuestions(v, 200, nil, nil) }

// showQuestions shows the list, and one question of it. sent is a form that was not accepted.
func showQuestions(v *visit, status int, said *notice, sent *question) error {
	list, err := openQuestions(v)
	if err != nil {
		return err
	}
	b := &questionsPage{List: list}
	id, step := run.ID(v.r.PathValue("run")), v.r.PathValue("step")
	b.Item = id != ""
	at := slices.IndexFunc(list, func(q *question) bool { return q.Info.Run == id && q.is(step) })
	if b.Item && at < 0 {
		if _, err := readHistory(v, id); err != nil {
			return err
		}
		if said == nil {
			status, said = decided(v, id, run.Path(step))
		}
	}
	f := &frame{Title: "Questions", Here: "questions", Class: "list", Waiting: len(list), Notice: said, Body: b, Same: []string{"rath answer", v.curl("GET", "/questions")}}
	if !b.Item && len(list) > 0 {
		at = 0
	}
	if at >= 0 {
		b.Asked = list[at]
		b.Asked.Chosen = true
		if len(list) > 1 {
			b.Next = list[(at+1)%len(list)]
		}
		if err := fillQuestion(v, b.Asked, list); err != nil {
			return err
		}
		if sent != nil {
			b.Asked.Edited, b.Asked.ReasonIn = sent.Edited, sent.ReasonIn
		}
		f.Same = []string{"rath answer " + string(b.Asked.Info.Run) + " " + string(b.Asked.Step) + " yes", v.curl("POST", "/runs/"+string(b.Asked.Info.Run)+"/answer")}
	}
	if b.Item {
		f.Class, f.Title = "item", string(id)+" asks"
	}
	f.Keys = []key{{"j k", "next, previous"}, {"a", "approve, then Enter"}, {"o", "open the run"}, {"?", "all keys"}}
	return v.show(status, "questions", f)
}

func (q *question) is(step string) bool { return string(q.Step) == step || q.Step == "" && step == "-" }

// fillQuestion reads the whole call or detail of a question, and digests it.
func fillQuestion(v *visit, q *question, list []*question) error {
	if q.Kind == run.WaitApproval || q.Kind == run.WaitResponse {
		if err := fillCall(v, q); err != nil {
			return err
		}
		if q.Call != nil {
			if err := fillDiff(v, q); err != nil {
				return err
			}
			fillAlike(v, q, list)
		}
		if err := fillEarlier(v, q); err != nil {
			return err
		}
	}
	q.Digest = q.digest(true)
	q.Hidden += strings.Count(q.Title, "⟦U+") // lineage names them
	for _, s := range []string{q.Title, q.Detail} {
		q.Hidden += hiddenIn(s)
	}
	if q.Call != nil {
		q.Hidden += hiddenIn(q.Args())
	}
	return nil
}

// readCall reads the call of a question.
func readCall(v *visit, q *question) error {
	open := client.QuestionsOf(q.Info)
	i := slices.IndexFunc(open, func(o client.Question) bool { return o.Step == q.Step })
	if i < 0 {
		return fmt.Errorf("question %s of run %s: %w", q.Step, q.Info.Run, run.ErrState)
	}
	q.asked = &open[i]
	call, err := v.Client.Questions.Call(v.ctx, open[i])
	switch {
	case err == nil:
		q.Call = &call
	case !errors.Is(err, session.ErrNotFound):
		q.Broken = messages.Text(err)
	}
	return nil
}

func fillCall(v *visit, q *question) error {
	if err := readCall(v, q); err != nil {
		return err
	}
	detail, schema, err := v.Client.Questions.Detail(v.ctx, *q.asked)
	if err != nil {
		return err
	}
	if q.Schema = schema; q.Call == nil {
		q.Detail = detail
	}
	var enum struct {
		Enum []string `json:"enum"`
	}
	if json.Unmarshal(schema, &enum) == nil {
		q.Choices = enum.Enum
	}
	return nil
}

// Args is the arguments of the call, as the model wrote them, with breaks where they are
// JSON.
func (q *question) Args() string {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(q.Call.Args), &fields) != nil {
		return q.Call.Args
	}
	var out []string
	for _, name := range slices.Sorted(mapKeys(fields)) {
		value := string(fields[name])
		var text string
		if json.Unmarshal(fields[name], &text) == nil && strings.Contains(text, "\n") {
			value = "\n" + text
		}
		out = append(out, name+": "+value)
	}
	return strings.Join(out, "\n")
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// digest is the hash of all that an answer is about; without the place, equal questions of
// other runs have the same.
func (q *question) digest(place bool) string {
	h := sha256.New()
	field := func(s string) { _, _ = fmt.Fprintf(h, "%d:%s", len(s), s) } // a hash takes all
	if place {
		field(string(q.Info.Run))
		field(string(q.Step))
	}
	for _, s := range []string{q.Kind, q.Name, q.Title, q.Wants, q.Detail, string(q.Schema), q.Broken} {
		field(s)
	}
	if q.Call != nil {
		field(q.Call.Name)
		field(q.Call.Args)
	}
	for _, d := range q.Diffs { // the files may have changed since
		field(d.Path)
		for _, hunk := range d.Hunks {
			for _, l := range hunk.Lines {
				field(string(l.Op) + l.Text)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// fillDiff makes the difference that a call of a built-in tool would make.
func fillDiff(v *visit, q *question) error {
	var in struct {
		Path, Content, Input string
		Old                  string `json:"old_string"`
		New                  string `json:"new_string"`
		All                  bool   `json:"replace_all"`
	}
	if json.Unmarshal([]byte(q.Call.Args), &in) != nil {
		return nil
	}
	switch q.Call.Name {
	case tool.ApplyPatch:
		q.Patch = in.Input
		return nil
	case tool.WriteWorkspaceFile, tool.Edit:
	default:
		return nil
	}
	now, err := fileOf(v, q.Info, path.Clean(in.Path))
	if err != nil {
		q.DiffNote = "The present file cannot be read: " + messages.Text(err)
		return nil
	}
	after := in.Content
	if q.Call.Name == tool.Edit {
		if n := strings.Count(now, in.Old); in.Old == "" || n == 0 || n > 1 && !in.All {
			q.DiffNote = fmt.Sprintf("The text to replace occurs %d times in the file: the call would fail.", n)
			return nil
		}
		after = strings.ReplaceAll(now, in.Old, in.New)
	}
	d := fileDiff{Path: in.Path, Hunks: manifest.Hunks(manifest.SplitLines([]byte(now)), manifest.SplitLines([]byte(after)))}
	for i := range d.Hunks {
		a, r := d.Hunks[i].Changed()
		d.Added, d.Removed = d.Added+a, d.Removed+r
	}
	if len(d.Hunks) == 0 {
		d.Note = "The file has these bytes already."
	}
	q.Diffs = []fileDiff{d}
	return nil
}

// maxDiffed bounds the files whose differences are shown.
const maxDiffed = 1 << 20

// fileOf returns the text of a file in the newest files of a run's session, "" for none.
func fileOf(v *visit, r *messages.RunInfo, name string) (string, error) {
	s, err := v.Client.Sessions.After(v.ctx, string(r.Session), 1<<40)
	if err != nil || s.Placement.Head.IsZero() {
		return "", err
	}
	at := s.Placement.Head.String() + name
	if text, ok := v.texts[at]; ok {
		return text, nil
	}
	store := v.Client.Blobs()
	t, err := manifest.Load(v.ctx, store, s.Placement.Head)
	if err != nil {
		return "", err
	}
	e, ok := t.Lookup(name)
	switch {
	case !ok:
		return "", nil
	case e.Kind != manifest.File || e.Size > maxDiffed:
		return "", fmt.Errorf("%s is a %s of %s", name, e.Kind, byteSize(e.Size))
	}
	rc, err := manifest.NewFiles(store, t).Get(v.ctx, e.Digest)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(rc)
	if err = errors.Join(err, rc.Close()); err == nil {
		v.texts[at] = string(data)
	}
	return string(data), err
}

// mostAlike bounds the questions that are compared with one.
const mostAlike = 50

// fillAlike finds the questions that ask for exactly the same call.
func fillAlike(v *visit, q *question, list []*question) {
	left := mostAlike
	for _, o := range list {
		if o == q || o.Kind != q.Kind || o.Title != q.Title || o.Name != q.Name || left == 0 {
			continue
		}
		left--
		other := *o
		other.Schema = q.Schema // of the same call
		if readCall(v, &other) == nil && other.Call != nil && other.Call.Name == q.Call.Name && other.Call.Args == q.Call.Args && fillDiff(v, &other) == nil && other.digest(false) == q.digest(false) {
			q.Alike = append(q.Alike, o)
		}
	}
}

// earlier is an answer to a question of the same kind.
type earlier struct {
	messages.Record
	Href string
}

// mostEarlier bounds the answers that a page shows, and earlierRuns the newest runs of the
// workflow in which they are looked up.
const (
	mostEarlier = 5
	earlierRuns = 20
)

// fillEarlier finds the newest answers to questions of this kind.
func fillEarlier(v *visit, q *question) error {
	answered := []run.State{run.Running, run.Succeeded, run.Failed, run.Cancelled, run.TimedOut} // few of those that wait have answers
	runs, err := v.Client.Runs.List(v.ctx, &client.RunsOptions{Workflow: q.Info.Workflow, States: answered, Limit: earlierRuns})
	if err != nil {
		return err
	}
	runs = append([]messages.RunInfo{*q.Info}, runs...)
	ctx, cancel := context.WithTimeout(v.ctx, time.Second)
	defer cancel()
	for i := range runs {
		r := &runs[i]
		if !v.Own(r) || r.Session == "" || len(q.Earlier) >= mostEarlier {
			continue
		}
		g, _, err := view.LineagePage(v.Client.Lineage.Page).RunGraph(ctx, v.Tenant, r)
		if err != nil {
			continue // its lineage is not there yet, or the time is over
		}
		for _, rec := range answersOf(v, g, r, func(w messages.Wait) bool { return w.Kind == q.Kind && w.Name == q.Name }) {
			q.Earlier = append(q.Earlier, earlier{rec, v.base() + "/runs/" + string(r.Run)})
		}
	}
	return nil
}

// answersOf returns the records that answered the questions of a run that fit.
func answersOf(v *visit, g *lineage.Graph, r *messages.RunInfo, fits func(messages.Wait) bool) (out []messages.Record) {
	asked := map[run.Path]messages.Wait{}
	for _, s := range r.Sessions {
		for _, rec := range g.Records(session.Key{Tenant: v.Tenant, ID: s}) {
			for _, w := range rec.Waits {
				asked[w.Step] = w
			}
			if w := asked[rec.Step]; rec.Run == r.Run && (rec.Kind == messages.KindAnswered && fits(w) || rec.Kind == messages.KindResolved && fits(messages.Wait{Kind: waitReview})) {
				out = append(out, rec)
			}
		}
	}
	return out
}

// decided returns the status and the remark for a question that is not open any more.
func decided(v *visit, id run.ID, step run.Path) (int, *notice) {
	n := &notice{Class: "ask", Icon: "ask", Bold: "This question is not open.", Text: "It has expired, or its run has ended. Your answer was not recorded.", Href: v.base() + "/runs/" + string(id), Link: "Open the run"}
	h, err := readHistory(v, id)
	if err != nil || h.graph == nil {
		return 409, n
	}
	for _, r := range answersOf(v, h.graph, &h.info, func(w messages.Wait) bool { return w.Step == step || w.Kind == waitReview }) {
		n.Bold = cmp.Or(r.By, "Somebody") + " was first, " + view.Age(v.now, r.When()) + " ago: " + r.Action() + "."
		n.Text = "Your answer was not recorded."
	}
	return 409, n
}

// answer records an answer to exactly the question that was shown.
func (v *visit) answer() error {
	id, step := run.ID(v.r.PathValue("run")), v.r.PathValue("step")
	list, err := openQuestions(v)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(list, func(q *question) bool { return q.Info.Run == id && q.is(step) })
	if at < 0 {
		return showQuestions(v, 409, nil, nil)
	}
	q := list[at]
	if err := v.May(q.Verb); err != nil {
		return err
	}
	if err := fillQuestion(v, q, list); err != nil && !errors.Is(err, run.ErrState) {
		return err
	}
	in := v.r.PostForm
	sent := &question{Edited: in.Get("value"), ReasonIn: in.Get("reason")}
	back := func(status int, class, bold, text string) error {
		return showQuestions(v, status, &notice{Class: class, Icon: class, Bold: bold, Text: text}, sent)
	}
	switch {
	case in.Get("shown") != q.Digest:
		return back(409, "review", "The call has changed since your page was made.", "Read it again, then answer: your answer was not recorded.")
	case in.Get("answer") != "no" && q.Hidden > 0 && in.Get("seen") != fmt.Sprint(q.Hidden):
		return back(422, "review", fmt.Sprintf("There are %d hidden characters.", q.Hidden), "Confirm that you have seen them, then answer.")
	case in.Get("answer") == "no" && strings.TrimSpace(in.Get("reason")) == "":
		return back(422, "review", "A rejection needs a reason.", "The agent gets it as the result of its call.")
	}
	asked := []*question{q}
	if in.Get("alike") == fmt.Sprint(len(q.Alike)) && len(q.Alike) > 0 {
		asked = append(asked, q.Alike...)
	}
	for i, one := range asked {
		err := sendAnswer(v, one, q)
		switch {
		case errors.Is(err, run.ErrMalformed), errors.Is(err, errForm):
			return back(422, "fail", "The answer was not taken.", messages.Text(err))
		case errors.Is(err, run.ErrState) && i == 0:
			return showQuestions(v, 409, nil, nil)
		case err != nil && !errors.Is(err, run.ErrState):
			return err
		}
	}
	for i := range list {
		if next := list[(at+1+i)%len(list)]; !slices.ContainsFunc(asked, func(a *question) bool { return a.Href == next.Href }) {
			return v.to(next.Href)
		}
	}
	return v.to(v.base() + "/questions")
}

// sendAnswer sends the form's answer to one question; like is the question of the form.
func sendAnswer(v *visit, q, like *question) error {
	in := v.r.PostForm
	d := messages.Control{Step: q.Step, Reason: in.Get("reason")}
	value := strings.TrimSpace(in.Get("value"))
	switch q.Kind {
	case run.WaitMessage:
		return v.Client.Runs.Message(v.ctx, q.Info.Run, messages.Control{Text: value, Step: q.Step})
	case run.WaitResponse:
		d.Value = form.Read(string(like.Schema), value)
		return v.Client.Questions.Answer(v.ctx, q.Info.Run, d)
	case waitReview:
		d.Decision = in.Get("answer")
		if d.Decision == run.Happened && value != "" {
			d.Value = json.RawMessage(value)
		}
		return v.Client.Runs.Resolve(v.ctx, q.Info.Run, d)
	}
	switch in.Get("answer") {
	case "no":
		return v.Client.Questions.Reject(v.ctx, q.Info.Run, d)
	case "edit":
		if !json.Valid([]byte(value)) {
			return fmt.Errorf("%w: the edited call is not JSON", errForm)
		}
		d.Value = json.RawMessage(value)
	case "yes":
	default:
		return fmt.Errorf("%w: choose an answer", errForm)
	}
	return v.Client.Questions.Approve(v.ctx, q.Info.Run, d)
}
