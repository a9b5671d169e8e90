package notify

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// message is one notification to one target.
type message struct {
	input
	id     string // the same in each attempt
	tenant session.Tenant
	link   string // "" without one
}

// title describes the event in one line.
func (m *message) title() string {
	text := kinds[indexOf(m.Kind)].text
	if m.AfterMS > 0 {
		text = "Still open: run %s waits for an answer"
	}
	of := string(m.Run)
	if m.Workflow != "" {
		of = strings.TrimSpace(of + " of " + m.Workflow)
	}
	if m.tenant != session.DefaultTenant {
		of += ", tenant " + string(m.tenant) + ","
	}
	return strings.Join(strings.Fields(fmt.Sprintf(text, of)), " ")
}

// standard returns the body in the form of Standard Webhooks.
func (m *message) standard() ([]byte, error) {
	var body struct {
		Type      string    `json:"type"`
		ID        string    `json:"id"`
		Timestamp time.Time `json:"timestamp"`
		Data      struct {
			Tenant   session.Tenant `json:"tenant"`
			Run      run.ID         `json:"run,omitempty"`
			Workflow string         `json:"workflow,omitempty"`
			Sequence uint64         `json:"sequence,omitempty"`
			Link     string         `json:"link,omitempty"`
		} `json:"data"`
	}
	body.Type, body.ID, body.Timestamp = kinds[indexOf(m.Kind)].standard, m.id, time.UnixMilli(m.TimeMS).UTC()
	if m.AfterMS > 0 {
		body.Type = "question.open"
	}
	body.Data.Tenant, body.Data.Run, body.Data.Workflow, body.Data.Sequence, body.Data.Link = m.tenant, m.Run, m.Workflow, m.Sequence, m.link
	return json.Marshal(body)
}

// errKey does not repeat the key.
var errKey = errors.New("its secret is no key of Standard Webhooks: want whsec_ and base64 of 24 to 64 bytes")

// sign returns the signature of a body that is sent at a time.
func sign(secret, id string, at time.Time, body []byte) (string, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) < 24 || len(key) > 64 {
		return "", errKey
	}
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "%s.%d.%s", id, at.Unix(), body)
	return "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil)), nil
}

// slackText escapes text for Slack: without these characters it has no mention or link.
var slackText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// slack returns the body for Slack and its look-alikes.
func (m *message) slack() ([]byte, error) {
	text := slackText.Replace(m.title())
	if m.link != "" {
		text = "<" + strings.ReplaceAll(slackText.Replace(m.link), "|", "%7C") + "|" + strings.ReplaceAll(text, "|", "/") + ">"
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(map[string]string{"text": text})
	return bytes.TrimSpace(b.Bytes()), err
}

// mail returns an e-mail. The list has checked the addresses, and no other text of a header
// can end its line.
func (m *message) mail(from string, to []string, at time.Time) []byte {
	_, domain, _ := strings.Cut(from, "@")
	var b bytes.Buffer
	for _, h := range [][2]string{
		{"From", from},
		{"To", strings.Join(to, ", ")},
		{"Subject", mime.QEncoding.Encode("utf-8", m.title())},
		{"Date", at.Format(time.RFC1123Z)},
		{"Message-ID", "<" + m.id + "@" + domain + ">"},
		{"Auto-Submitted", "auto-generated"},
		{"X-Rath-Sequence", strconv.FormatUint(m.Sequence, 10)},
		{"MIME-Version", "1.0"},
		{"Content-Type", "text/plain; charset=utf-8"},
	} {
		b.WriteString(h[0] + ": " + h[1] + "\r\n")
	}
	b.WriteString("\r\n" + m.title() + ".\r\n")
	if m.link != "" {
		b.WriteString("\r\n" + m.link + "\r\n")
	}
	return b.Bytes()
}
