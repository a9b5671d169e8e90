package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// headState holds the heads of files and the stored blobs.
type headState struct {
	named  map[key]headClaim // by tenant and digest: the first commit that names it
	stored map[key]bool
	needs  map[key][]string  // the blobs that a stored head names
	parts  map[key][]string  // the blobs that a stored list of instructions names
	whole  bool              // all stored blobs were listed
	given  map[key]headClaim // the first commit that names a list of a model's instructions
}

// headClaim is a commit that names a head.
type headClaim struct {
	l   *log
	seq uint64
}

func (h *headState) init() {
	h.named, h.stored, h.needs = map[key]headClaim{}, map[key]bool{}, map[key][]string{}
	h.given, h.parts = map[key]headClaim{}, map[key][]string{}
}

// head records that a commit names a head.
func (f *folding) head(digest string) {
	k := key{f.l.tenant, digest}
	if _, known := f.a.heads.named[k]; digest != "" && !known {
		f.a.heads.named[k] = headClaim{f.l, f.c.seq}
	}
}

// given records the list of instructions that a model step names.
func (f *folding) given(list string) {
	k := key{f.l.tenant, list}
	if _, known := f.a.heads.given[k]; list != "" && !known {
		f.a.heads.given[k] = headClaim{f.l, f.c.seq}
	}
}

// storedBlob processes the listing of a blob: its name, and its bytes if it may be a head
// or a list of instructions.
func (a *audit) storedBlob(m Message) {
	parts := strings.Split(m.Subject, ".")
	if len(parts) != 4 || !a.wanted(parts[2]) {
		return
	}
	k := key{parts[2], parts[3]}
	a.heads.stored[k] = true
	if len(m.Data) == 0 {
		return
	}
	sum := sha256.Sum256(m.Data)
	got := hex.EncodeToString(sum[:])
	a.check(Blobs, got == k.id, func() Violation {
		return Violation{Tenant: k.tenant, Stream: m.Stream, Seq: m.Seq, Expected: "bytes with the digest " + k.id, Found: got}
	})
	if names, ok := namesOf(m.Data); ok {
		a.heads.needs[k] = names
	} else if parts := partsOf(m.Data); parts != nil {
		a.heads.parts[k] = parts
	}
}

// partsOf returns the blobs that a list of instructions names.
func partsOf(data []byte) []string {
	var l struct {
		Instructions map[string]string `json:"instructions"`
	}
	if json.Unmarshal(data, &l) != nil {
		return nil
	}
	return slices.Sorted(maps.Values(l.Instructions))
}

// namesOf returns the blobs that the blob of a head names.
func namesOf(data []byte) (names []string, ok bool) {
	type entry struct {
		Kind   string   `json:"kind"`
		Size   int64    `json:"size"`
		Digest string   `json:"digest"`
		Pack   int      `json:"pack"`
		Parts  []string `json:"parts"`
	}
	var h struct {
		Format  int       `json:"format"`
		Heads   []string  `json:"heads"`
		Packs   []string  `json:"packs"`
		Dirs    [][]entry `json:"dirs"`
		Entries []entry   `json:"entries"`
	}
	if json.Unmarshal(data, &h) != nil || h.Format < 1 || h.Format > 3 {
		return nil, false
	}
	names = append(h.Heads, h.Packs...)
	for _, dir := range append(h.Dirs, h.Entries) {
		for _, e := range dir {
			switch {
			case e.Kind != "file" || e.Size == 0 || e.Pack != 0:
			case len(e.Parts) > 0:
				names = append(names, e.Parts...)
			default:
				names = append(names, e.Digest)
			}
		}
	}
	return names, true
}

// finishHeads reports missing blobs of the heads of files and of instructions, if all
// stored blobs were listed.
func (a *audit) finishHeads() {
	if !a.heads.whole {
		return
	}
	for k, c := range a.heads.named {
		lost := a.lost(k, map[string]bool{})
		a.check(Blobs, lost == "", func() Violation {
			return c.l.says(c.seq, "", "blob "+lost+", of the files at head "+k.id, "nothing")
		})
	}
	for k, c := range a.heads.given {
		for _, id := range append(a.heads.parts[k], k.id) {
			a.check(Blobs, a.heads.stored[key{k.tenant, id}], func() Violation {
				return c.l.says(c.seq, "", "blob "+id+", of the instructions of a model's call", "nothing")
			})
		}
	}
}

// lost returns a missing blob that a head needs, "" if all are stored.
func (a *audit) lost(k key, seen map[string]bool) string {
	if seen[k.id] {
		return ""
	}
	seen[k.id] = true
	if !a.heads.stored[k] {
		return k.id
	}
	for _, name := range a.heads.needs[k] {
		if lost := a.lost(key{k.tenant, name}, seen); lost != "" {
			return lost
		}
	}
	return ""
}
