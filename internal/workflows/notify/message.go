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
	"strings"
	"time"

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
	of := string(m.Run)
	if m.Workflow != "" {
		of += " of " + m.Workflow
	}
	if m.tenant != session.DefaultTenant {
		of += ", tenant " + string(m.tenant) + ","
	}
	return strings.Join(strings.Fields(fmt.Sprintf(kinds[m.Kind].text, of)), " ")
}

// standard returns the body in the form of Standard Webhooks.
func (m *message) standard() ([]byte, error) {
	data := map[string]any{"tenant": m.tenant, "run": m.Run, "workflow": m.Workflow, "sequence": m.Sequence, "link": m.link}
	return json.Marshal(map[string]any{"type": kinds[m.Kind].standard, "id": m.id, "timestamp": time.UnixMilli(m.TimeMS).UTC(), "data": data})
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

// slackText escapes text for Slack: without these characters it has no mention and no link.
var slackText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", "%7C")

// slack returns the body for Slack and its look-alikes.
func (m *message) slack() ([]byte, error) {
	text := slackText.Replace(m.title())
	if m.link != "" {
		text = "<" + slackText.Replace(m.link) + "|" + text + ">"
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(map[string]string{"text": text})
	return b.Bytes(), err
}

// mail returns an e-mail. The list has checked the addresses, so that no text ends a line
// of the head.
func (m *message) mail(from string, to []string, at time.Time) []byte {
	_, domain, _ := strings.Cut(from, "@")
	return fmt.Appendf(nil, "From: %s\r\nTo: %s\r\nSubject: %s\r\nDate: %s\r\nMessage-ID: <%s@%s>\r\nAuto-Submitted: auto-generated\r\n"+
		"MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n%s.\r\n\r\n%s\r\n",
		from, strings.Join(to, ", "), mime.QEncoding.Encode("utf-8", m.title()), at.Format(time.RFC1123Z), m.id, domain, m.title(), m.link)
}
