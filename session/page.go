package session

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/blob"
)

// MaxPagePart is the maximum number of bytes that a snapshot stores under one digest; a
// larger page is stored in parts.
const MaxPagePart = 512 << 10

// PageRef names a page: the number of its items, and the digests of its bytes in parts
// of at most MaxPagePart.
type PageRef struct {
	Items int      `json:"items"`
	Parts []string `json:"parts"`
}

// Page is an immutable part of snapshots: items that are stored once and that later
// snapshots only refer to. It is safe for concurrent use.
type Page struct {
	ref PageRef

	mu     sync.Mutex
	data   string // until it is stored, or decoded if it was loaded
	stored bool
	chunks []Chunk // of a page of chunks, once decoded
}

// NewPage makes a page of some items' bytes.
func NewPage(items int, data string) *Page {
	p := &Page{ref: PageRef{Items: items}, data: data}
	for rest := data; ; rest = rest[MaxPagePart:] {
		sum := sha256.Sum256([]byte(rest[:min(len(rest), MaxPagePart)]))
		p.ref.Parts = append(p.ref.Parts, hex.EncodeToString(sum[:]))
		if len(rest) <= MaxPagePart {
			return p
		}
	}
}

// Ref names the page.
func (p *Page) Ref() PageRef { return p.ref }

// Save stores the page, part by part, unless it is stored already.
func (p *Page) Save(save func(digest string, part []byte) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stored {
		return nil
	}
	for i, digest := range p.ref.Parts {
		part := p.data[i*MaxPagePart : min((i+1)*MaxPagePart, len(p.data))]
		if err := save(digest, []byte(part)); err != nil {
			return fmt.Errorf("session: save page: %w", err)
		}
	}
	p.stored, p.data = true, "" // the items of a new page are held elsewhere
	return nil
}

// LoadPage reads the page that a reference names, part by part, and checks its bytes.
func LoadPage(r PageRef, load func(digest string) ([]byte, error)) (*Page, error) {
	var b strings.Builder
	for i, digest := range r.Parts {
		part, err := load(digest)
		if err != nil {
			return nil, fmt.Errorf("session: load page: %w", err)
		}
		sum := sha256.Sum256(part)
		if hex.EncodeToString(sum[:]) != digest || i < len(r.Parts)-1 && len(part) != MaxPagePart {
			return nil, fmt.Errorf("session: page %.8s: %w", digest, blob.ErrCorrupt)
		}
		b.Write(part)
	}
	return &Page{ref: r, data: b.String(), stored: true}, nil
}

// Data returns the bytes of a page that holds no chunks.
func (p *Page) Data() string { p.mu.Lock(); defer p.mu.Unlock(); return p.data }

// load decodes a page of chunks, once.
func (p *Page) load() ([]Chunk, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.chunks != nil {
		return p.chunks, nil
	}
	chunks, err := decodeChunks(p.data, p.ref.Items)
	if err != nil {
		return nil, err
	}
	p.chunks = chunks
	if p.stored {
		p.data = "" // the chunks share its bytes
	}
	return chunks, nil
}

// chunkPage makes a page of chunks.
func chunkPage(chunks []Chunk) *Page {
	p := NewPage(len(chunks), encodeChunks(chunks))
	p.chunks = chunks
	return p
}

// packer writes chunks in a compact form. Strings that repeat from chunk to
// chunk are written once and then named by their number.
type packer struct {
	b     []byte
	known map[string]uint64
}

// maxKnown bounds the strings that are named by number.
const maxKnown = 1 << 12

func (p *packer) uint(n uint64) { p.b = binary.AppendUvarint(p.b, n) }
func (p *packer) int(n int64)   { p.b = binary.AppendVarint(p.b, n) }

func (p *packer) str(s string) {
	p.uint(uint64(len(s)))
	p.b = append(p.b, s...)
}

func (p *packer) name(s string) {
	if n, ok := p.known[s]; ok {
		p.uint(n)
		return
	}
	p.uint(0)
	p.str(s)
	if len(p.known) < maxKnown {
		p.known[s] = uint64(len(p.known)) + 1
	}
}

func (p *packer) bool(b bool) bool {
	if b {
		p.b = append(p.b, 1)
	} else {
		p.b = append(p.b, 0)
	}
	return b
}

// The encodings of a chunk's placement in a page.
const (
	noPlacement uint64 = iota
	placement
	placementServices
)

// Which blobs of a chunk a page names.
const (
	hasBody uint64 = 1 << iota
	hasImages
)

func (p *packer) chunk(r *row) {
	p.name(string(r.kind))
	p.str(r.text)
	p.uint(uint64(len(r.calls)))
	for _, c := range r.calls {
		p.str(c.Args)
		p.str(c.ID)
		p.name(c.Name)
	}
	p.str(r.callID)
	p.name(r.name)
	p.bool(r.failed)
	// A chunk without images is encoded as in releases without images.
	var has uint64
	if (r.body != blob.Ref{}) {
		has |= hasBody
	}
	if len(r.images) > 0 {
		has |= hasImages
	}
	p.uint(has)
	if has&hasBody != 0 {
		p.b = append(p.b, r.body.Digest[:]...)
		p.int(r.body.Size)
	}
	if has&hasImages != 0 {
		p.uint(uint64(len(r.images)))
		for _, i := range r.images {
			p.b = append(p.b, i.Digest[:]...)
			p.int(i.Size)
			p.name(i.Type)
		}
	}
	p.str(r.opaque)
	o := &r.origin
	for _, s := range []string{o.Agent, o.Workflow, o.Node, o.Run} {
		p.name(s)
	}
	p.str(o.Step)
	p.int(o.Time.UnixMilli())
	// A placement without services is encoded as in releases without services.
	kind, at := noPlacement, r.placed()
	if (at != Placement{}) {
		kind = placement
	}
	if at.Services != "" {
		kind = placementServices
	}
	p.uint(kind)
	if kind != noPlacement {
		p.name(at.Backend)
		p.uint(at.Epoch)
		p.name(string(at.Head[:]))
		for _, s := range []string{at.Isolation, at.Spec, at.Image, at.Limits, at.Network} {
			p.name(s)
		}
	}
	if kind == placementServices {
		p.name(at.Services)
	}
	if p.bool(o.Usage != Usage{}) {
		u := &o.Usage
		for _, n := range []int64{u.CacheRead, u.CacheWrite, u.Calls, u.Input, u.MicroUSD, u.Output} {
			p.int(n)
		}
	}
	p.name(string(r.ref.Tenant))
	p.name(string(r.ref.ID))
	p.uint(uint64(r.ref.Version))
}

func encodeChunks(chunks []Chunk) string {
	p := packer{known: map[string]uint64{}}
	for _, c := range chunks {
		p.chunk(c.row())
	}
	return string(p.b)
}

// unpacker reads the output of a packer. The first mistake ends the reading.
type unpacker struct {
	s     string
	known []string
	at    *Placement // of the chunk before
	bad   bool
}

func (u *unpacker) fail() { u.s, u.bad = "", true }

func (u *unpacker) uint() uint64 {
	var n uint64
	for i := range min(len(u.s), binary.MaxVarintLen64) {
		c := u.s[i]
		n |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			u.s = u.s[i+1:]
			return n
		}
	}
	u.fail()
	return 0
}

func (u *unpacker) int() int64 {
	n := u.uint()
	if n&1 != 0 {
		return ^int64(n >> 1)
	}
	return int64(n >> 1)
}

func (u *unpacker) take(n uint64) string {
	if n > uint64(len(u.s)) {
		u.fail()
		return ""
	}
	s := u.s[:n]
	u.s = u.s[n:]
	return s
}

func (u *unpacker) str() string { return u.take(u.uint()) }

func (u *unpacker) name() string {
	n := u.uint()
	if n == 0 {
		s := u.str()
		if len(u.known) < maxKnown {
			u.known = append(u.known, s)
		}
		return s
	}
	if n > uint64(len(u.known)) {
		u.fail()
		return ""
	}
	return u.known[n-1]
}

func (u *unpacker) bool() bool {
	s := u.take(1)
	if s != "" && s[0] > 1 {
		u.fail()
	}
	return s == "\x01"
}

func (u *unpacker) digest() (d blob.Digest) {
	copy(d[:], u.take(uint64(len(d))))
	return d
}

func (u *unpacker) chunk(r *row) {
	r.kind = Kind(u.name())
	r.text = u.str()
	if n := u.uint(); n > uint64(len(u.s)) {
		u.fail()
	} else if n > 0 {
		r.calls = make([]ToolCall, n)
		for i := range r.calls {
			r.calls[i] = ToolCall{Args: u.str(), ID: u.str(), Name: u.name()}
		}
	}
	r.callID = u.str()
	r.name = u.name()
	r.failed = u.bool()
	has := u.uint()
	if has > hasBody|hasImages {
		u.fail()
	}
	if has&hasBody != 0 {
		r.body = blob.Ref{Digest: u.digest(), Size: u.int()}
	}
	if has&hasImages != 0 {
		n := u.uint()
		if n > uint64(len(u.s)) {
			u.fail()
		} else {
			r.images = make([]Image, n)
		}
		for i := range r.images {
			r.images[i] = Image{u.digest(), u.int(), u.name()}
		}
	}
	r.opaque = u.str()
	o := &r.origin
	o.Agent, o.Workflow, o.Node, o.Run = u.name(), u.name(), u.name(), u.name()
	o.Step = u.str()
	o.Time = time.UnixMilli(u.int()).UTC()
	kind := u.uint()
	if kind > placementServices {
		u.fail()
	}
	var at Placement
	if kind != noPlacement {
		at.Backend, at.Epoch = u.name(), u.uint()
		copy(at.Head[:], u.name())
		at.Isolation, at.Spec = u.name(), u.name()
		at.Image, at.Limits, at.Network = u.name(), u.name(), u.name()
	}
	if kind == placementServices {
		at.Services = u.name()
	}
	if u.at == nil || *u.at != at {
		u.at = placed(at)
	}
	r.placement = u.at
	if u.bool() {
		o.Usage = Usage{u.int(), u.int(), u.int(), u.int(), u.int(), u.int()}
	}
	r.ref = Ref{Key{Tenant(u.name()), ID(u.name())}, Version(u.uint())}
}

var errPage = errors.New("session: page of chunks is damaged")

// decodeChunks reads n chunks. They share the bytes of s.
func decodeChunks(s string, n int) ([]Chunk, error) {
	if n < 0 || n > len(s) {
		return nil, errPage
	}
	u := unpacker{s: s}
	rows := make([]row, n)
	chunks := make([]Chunk, n)
	for i := range rows {
		u.chunk(&rows[i])
		chunks[i] = Chunk{&rows[i]}
	}
	if u.bad || u.s != "" {
		return nil, errPage
	}
	return chunks, nil
}
