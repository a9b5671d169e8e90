package session

import (
	"encoding/json"
	"math"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
)

// Most of a log is chunks, and most of the cost of folding it is decoding them. The
// methods of this file read the canonical encoding of a chunk as this release writes
// it; other encodings are left to encoding/json.

// reader reads the output of [canonical.Marshal].
type reader struct {
	canonical.Reader
	own bool // kept texts do not share S, see Unmarshal
}

// unmarshalChunk reads the data of a KindChunk event.
func unmarshalChunk(data string, d *chunkData) error {
	r := reader{Reader: canonical.Reader{S: data}}
	if r.chunk(d) && r.I == len(data) {
		return nil
	}
	*d = chunkData{}
	return json.Unmarshal([]byte(data), d)
}

// fields reads an object; field reads the value of a key.
func (r *reader) fields(field func(key string) bool) bool {
	if !r.Lit("{") {
		return false
	}
	if r.Lit("}") {
		return true
	}
	for {
		key, ok := r.Str()
		if !ok || !r.Lit(":") || !field(key) {
			return false
		}
		if !r.Lit(",") {
			return r.Lit("}")
		}
	}
}

// textTo and intTo read a value into a variable.
func textTo[T ~string](r *reader, into *T) bool {
	s, ok := r.Str()
	*into = T(s)
	return ok
}

func intTo(r *reader, into *int64) bool {
	n, ok := r.Uint(math.MaxInt64)
	*into = int64(n)
	return ok
}

func (r *reader) chunk(d *chunkData) bool {
	return r.fields(func(key string) bool {
		switch key {
		case "agent":
			return textTo(r, &d.Agent)
		case "body":
			d.Body = &blob.Ref{}
			return r.blob(d.Body)
		case "call_id":
			return textTo(r, &d.CallID)
		case "calls":
			return r.calls(&d.Calls)
		case "failed":
			d.Failed = r.Lit("true")
			return d.Failed
		case "images":
			return r.images(&d.Images)
		case "kind":
			return textTo(r, &d.Kind)
		case "name":
			return textTo(r, &d.Name)
		case "node":
			return textTo(r, &d.Node)
		case "opaque":
			return textTo(r, &d.Opaque)
		case "placement":
			return r.placement(&d.Placement)
		case "run":
			return textTo(r, &d.Run)
		case "step":
			return textTo(r, &d.Step)
		case "text":
			return textTo(r, &d.Text)
		case "usage":
			return r.usage(&d.Usage)
		case "workflow":
			return textTo(r, &d.Workflow)
		}
		return false
	})
}

func (r *reader) blob(b *blob.Ref) bool {
	return r.fields(func(key string) bool {
		switch key {
		case "digest":
			return r.Lit(`"`) && r.Digest(b.Digest[:]) && r.Lit(`"`)
		case "size":
			return intTo(r, &b.Size)
		}
		return false
	})
}

func (r *reader) images(images *[]Image) bool {
	return r.list(func() bool {
		var i Image
		ok := r.fields(func(key string) bool {
			switch key {
			case "digest":
				return r.Lit(`"`) && r.Digest(i.Digest[:]) && r.Lit(`"`)
			case "size":
				return intTo(r, &i.Size)
			case "type":
				return textTo(r, &i.Type)
			}
			return false
		})
		*images = append(*images, i)
		return ok
	})
}

func (r *reader) calls(calls *calls) bool {
	return r.list(func() bool {
		var c ToolCall
		ok := r.fields(func(key string) bool {
			switch key {
			case "args":
				return textTo(r, &c.Args)
			case "id":
				return textTo(r, &c.ID)
			case "name":
				return textTo(r, &c.Name)
			}
			return false
		})
		*calls = append(*calls, c)
		return ok
	})
}

// list reads a list that is not empty; one reads an item.
func (r *reader) list(one func() bool) bool {
	if !r.Lit("[") {
		return false
	}
	for one() {
		if !r.Lit(",") {
			return r.Lit("]")
		}
	}
	return false
}

func (r *reader) placement(p *Placement) bool {
	return r.fields(func(key string) bool {
		switch key {
		case "backend":
			return textTo(r, &p.Backend)
		case "epoch":
			n, ok := r.Uint(math.MaxUint64)
			p.Epoch = n
			return ok
		case "head":
			return r.Lit(`"`) && r.Digest(p.Head[:]) && r.Lit(`"`)
		case "image":
			return textTo(r, &p.Image)
		case "isolation":
			return textTo(r, &p.Isolation)
		case "limits":
			return textTo(r, &p.Limits)
		case "network":
			return textTo(r, &p.Network)
		case "services":
			return textTo(r, &p.Services)
		case "spec":
			return textTo(r, &p.Spec)
		}
		return false
	})
}

func (r *reader) usage(u *Usage) bool {
	return r.fields(func(key string) bool {
		switch key {
		case "cache_read":
			return intTo(r, &u.CacheRead)
		case "cache_write":
			return intTo(r, &u.CacheWrite)
		case "calls":
			return intTo(r, &u.Calls)
		case "input":
			return intTo(r, &u.Input)
		case "micro_usd":
			return intTo(r, &u.MicroUSD)
		case "output":
			return intTo(r, &u.Output)
		}
		return false
	})
}
