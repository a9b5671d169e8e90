package audit_test

import (
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/evidence/audit"
)

// TestHeadsAreThere checks that the audit reports each missing blob that the head of a
// session's files needs, and no other, if all stored blobs are listed.
func TestHeadsAreThere(t *testing.T) {
	pack, file, part, unused := hashed([]byte("pack")), hashed([]byte("file")), hashed([]byte("part")), hashed([]byte("unused"))
	old := `{"format":3,"packs":["` + pack + `"],"dirs":[[{"name":"p","kind":"file","size":1,"digest":"` + unused + `","pack":1,"len":1}]]}`
	former := `{"format":1,"entries":[{"path":"f","kind":"file","size":4,"digest":"` + file + `"},{"path":"none","kind":"file","digest":"` + unused + `"}]}`
	head := `{"format":3,"heads":["` + hashed([]byte(old)) + `"],"dirs":[[{"name":"d","kind":"dir","head":1},{"name":"large","kind":"file","size":9,"digest":"` + unused + `","parts":["` + part + `"]}]]}`
	stored := map[string]string{hashed([]byte(head)): head, hashed([]byte(old)): old, hashed([]byte(former)): former, pack: "", file: "", part: ""}
	found := func(lost string, listed bool) string {
		w := newWorld(t, nil)
		l := w.log("h1", "h1")
		l.commit(l.open("n1"), l.ev("session.opened", `{"kind":"leaf"}`), l.submit("q1", ""), l.claim("q1", "h1", "n1"))
		for i, digest := range []string{hashed([]byte(head)), hashed([]byte(former))} {
			l.commit(l.step("q1", []string{"1", "2"}[i], "open", "", l.ev("session.placed", `{"backend":"local","epoch":1,"head":"`+digest+`"}`)))
		}
		seq := uint64(0)
		for digest, data := range stored {
			if seq++; digest != lost {
				w.others = append(w.others, audit.Message{Stream: "BLOB", Seq: seq, Subject: "rath.blob.acme." + digest, Data: []byte(data)})
			}
		}
		if listed {
			w.others = append(w.others, audit.Message{Stream: "BLOB", Seq: seq})
		}
		return violations(w.audited(func(o *audit.Options) { o.Open = true }))
	}
	if got := found("", true); got != "" {
		t.Errorf("all are there: %s", got)
	}
	for digest := range stored {
		if got := found(digest, true); strings.Count(got, "\n") != 1 || !strings.Contains(got, audit.Blobs) || !strings.Contains(got, digest) {
			t.Errorf("without %s: %s", digest, got)
		}
		if got := found(digest, false); got != "" {
			t.Errorf("not all are listed: %s", got)
		}
	}
}

// TestInstructionsAreThere checks that the audit reports missing blobs of a model's
// instructions if all stored blobs are listed, even if another tenant has the blob. A part
// that looks like a list names no blob.
func TestInstructionsAreThere(t *testing.T) {
	text := `{"instructions":{"prompt":"none"}}`
	prompt, tools := hashed([]byte(text)), hashed([]byte("[]"))
	list := `{"instructions":{"prompt":"` + prompt + `","tools":"` + tools + `"}}`
	stored := map[string]string{hashed([]byte(list)): list, prompt: text, tools: ""}
	found := func(tenant, lost string) string {
		w := newWorld(t, nil)
		l := w.log("h1", "h1")
		l.commit(l.open("n1"), l.ev("session.opened", `{"kind":"leaf"}`), l.submit("q1", ""), l.claim("q1", "h1", "n1"))
		l.commit(in("q1/1", l.ev("step.done", `{"attempt":1,"given":"@l","input":"i","kind":"model","name":"n","path":"1","run":"q1"}`, "@l", hashed([]byte(list)))))
		seq := uint64(0)
		for digest, data := range stored {
			if seq++; digest != lost {
				w.others = append(w.others, audit.Message{Stream: "BLOB", Seq: seq, Subject: "rath.blob." + tenant + "." + digest, Data: []byte(data)})
			}
		}
		w.others = append(w.others, audit.Message{Stream: "BLOB", Seq: seq})
		return violations(w.audited(func(o *audit.Options) { o.Open = true }))
	}
	if got := found("acme", ""); got != "" {
		t.Errorf("all are there: %s", got)
	}
	for digest := range stored {
		if got := found("acme", digest); strings.Count(got, "\n") != 1 || !strings.Contains(got, audit.Blobs) || !strings.Contains(got, digest) {
			t.Errorf("without %s: %s", digest, got)
		}
	}
	if got := found("globex", ""); strings.Count(got, "\n") != 1 || !strings.Contains(got, hashed([]byte(list))) {
		t.Errorf("they are another tenant's: %s", got)
	}
}
