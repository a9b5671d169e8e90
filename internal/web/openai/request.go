package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// request is a turn that a client asks for, in either form of the protocol.
type request struct {
	caller   *access.Caller
	workflow *messages.Workflow
	rows     []row
	// approvals are the client's answers to questions.
	approvals []approval
	tags      run.Tags
	// previous is the run that the client names, and conversation a session.
	previous     run.ID
	conversation string
	body         string   // its digest
	retry        bool     // of the client's library
	sums         []string // see heads
}

// approval is an answer to a question of a run.
type approval struct {
	part
	allow  bool
	reason string
}

// tagHead is the tag of a run that has the digest of the rows before its answer.
const tagHead = "openai"

// heads returns the digests of the first rows: heads[i] covers rows[:i], the user and the
// workflow, so that nobody's history matches that of another user.
func (q *request) heads() []string {
	if len(q.sums) == len(q.rows)+1 {
		return q.sums // a history has megabytes
	}
	sum := digest(string(q.caller.Tenant), q.caller.User, q.workflow.Name)
	all := []string{sum}
	for _, r := range q.rows {
		sum = digest(sum, r.Role, r.Text)
		all = append(all, sum)
	}
	q.sums = all
	return all
}

// digest returns half of the SHA-256 of texts.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// answerAt returns the index of the last answer among the rows, -1 for none.
func (q *request) answerAt() int {
	for i := len(q.rows) - 1; i >= 0; i-- {
		if q.rows[i].Role == roleAssistant {
			return i
		}
	}
	return -1
}

// maxMetadata is the number of pairs of a request that become tags of its run.
const maxMetadata = run.MaxTags - 2

// tagsOf returns the metadata of a request as tags.
func tagsOf(pairs map[string]string) (run.Tags, error) {
	if len(pairs) > maxMetadata {
		return nil, wrong("metadata", fmt.Sprintf("%d pairs", len(pairs)), fmt.Sprintf("send at most %d", maxMetadata))
	}
	tags := run.Tags{}
	for key, value := range pairs {
		if err := run.ValidTag(key, value); err != nil {
			return nil, wrong("metadata", messages.Text(err), "shorten it: the pairs become tags of the run")
		}
		if strings.HasPrefix(key, tagHead) {
			return nil, wrong("metadata", fmt.Sprintf("the key %q is taken", key), "choose another key")
		}
		tags[key] = value
	}
	return tags, nil
}

// statement begins the rows of a history without a record.
const statement = "The client states this earlier conversation. No record confirms it.\n\n"

// input returns the input of the workflow: the rows from one on, of which those before
// fresh are the client's own statement. begins reports that the session is a new one.
func (q *request) input(from, fresh int, begins bool) (json.RawMessage, error) {
	var text, system, claim []string
	object := takesSystem(q.workflow.Input)
	for i, r := range q.rows {
		switch {
		case r.Role == roleSystem && (object || i >= from || begins):
			system = append(system, r.Text)
		case r.Role == roleSystem || i < from:
		case i < fresh:
			claim = append(claim, r.Role+": "+r.Text)
		default:
			text = append(text, r.Text)
		}
	}
	prompt := strings.Join(text, "\n\n")
	if strings.TrimSpace(prompt) == "" {
		return nil, wrong("messages", "the last one is no text of the user", "end with a user message")
	}
	if claim != nil {
		prompt = statement + strings.Join(claim, "\n\n") + "\n\nIt goes on:\n\n" + prompt
	}
	instructions := strings.Join(system, "\n\n")
	if object && instructions != "" {
		return messages.Encode(map[string]string{"prompt": prompt, "system": instructions})
	}
	if instructions != "" {
		prompt = "Instructions: " + instructions + "\n\n" + prompt
	}
	return messages.Encode(prompt)
}

// takesSystem reports whether a workflow's input may be an object with a prompt and
// instructions. Others get one text.
func takesSystem(schema json.RawMessage) bool {
	var s struct {
		OneOf, AnyOf []json.RawMessage
		Properties   map[string]json.RawMessage
	}
	if json.Unmarshal(schema, &s) != nil {
		return false
	}
	if s.Properties["prompt"] != nil && s.Properties["system"] != nil {
		return true
	}
	return slices.ContainsFunc(append(s.OneOf, s.AnyOf...), takesSystem)
}

// fork names a version of a session.
func fork(id session.ID, v session.Version) string { return fmt.Sprintf("%s:%d", id, v) }
