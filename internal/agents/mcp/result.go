package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// body is the model's view of a result. If the result is one piece of text, only Text is
// set.
type body struct {
	OK         *bool           `json:"ok,omitempty"` // false of an error
	Text       string          `json:"text,omitempty"`
	Content    []part          `json:"content,omitempty"`
	Structured json.RawMessage `json:"structured,omitempty"`
}

// part is a piece of a result. The bytes of images, sounds and files are stored as a blob.
type part struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
	Name string `json:"name,omitempty"`
	URI  string `json:"uri,omitempty"`
	MIME string `json:"mime,omitempty"`
	// Hidden is the reason why a model does not see an image, or a piece that cannot be read.
	Hidden string `json:"hidden,omitempty"`
	// Bytes and Blob describe content that is not text.
	Bytes int    `json:"bytes,omitempty"`
	Blob  string `json:"blob,omitempty"`
}

// result converts the result of a call for the transcript.
func result(ctx context.Context, s *Server, res *sdk.CallToolResult, blobs blob.Store) (tool.Result, error) {
	if n := len(res.Content); n > MaxParts { // each may be a blob, however short
		return tool.Result{}, tooLarge(s, n, "pieces", MaxParts)
	}
	var b body
	var images []session.Image
	size := 0
	keep := func(p *part, data []byte) error {
		p.Bytes, size = len(data), size+len(data)
		if size > MaxResult || blobs == nil {
			return nil
		}
		ref, err := blobs.Put(ctx, bytes.NewReader(data))
		if err != nil {
			return fmt.Errorf("keep %d bytes of a result: %w", len(data), err)
		}
		p.Blob = ref.Digest.String()
		return nil
	}
	show := func(p *part, data []byte) error {
		if err := keep(p, data); err != nil || p.Blob == "" {
			return err
		}
		switch img, err := session.NewImage(data); { // the actual type, which may differ from the server's claim
		case err != nil:
			p.Hidden = strings.TrimPrefix(err.Error(), "session: ")
		case len(images) == session.MaxImages:
			p.Hidden = fmt.Sprintf("a result has at most %d", session.MaxImages)
		default:
			p.MIME, images = img.Type, append(images, img)
		}
		return nil
	}
	for _, content := range res.Content {
		var p part
		var err error
		switch v := content.(type) {
		case *sdk.TextContent:
			p = part{Type: "text", Text: v.Text}
			if lost, ok := v.Meta[lostKey].(map[string]any); ok {
				kind, _ := lost["type"].(string)
				why, _ := lost["why"].(string)
				p = part{Type: cmp.Or(kind, "unknown"), Hidden: why}
			}
		case *sdk.ImageContent:
			p = part{Type: "image", MIME: clip(v.MIMEType, 100)}
			err = show(&p, v.Data)
		case *sdk.AudioContent:
			p = part{Type: "audio", MIME: clip(v.MIMEType, 100)}
			err = keep(&p, v.Data)
		case *sdk.ResourceLink:
			p = part{Type: "resource_link", URI: v.URI, Name: v.Name, Text: v.Description, MIME: clip(v.MIMEType, 100)}
		case *sdk.EmbeddedResource:
			p = part{Type: "resource"}
			if r := v.Resource; r != nil {
				p.URI, p.MIME, p.Text = r.URI, clip(r.MIMEType, 100), r.Text
				switch {
				case len(r.Blob) == 0:
				case strings.HasPrefix(p.MIME, "image/"):
					err = show(&p, r.Blob)
				default:
					p.Name, err = path.Base(r.URI), keep(&p, r.Blob)
				}
			}
		default:
			p = part{Type: "unknown"}
		}
		if err != nil {
			return tool.Result{}, err
		}
		size += len(p.Text) + len(p.URI) + len(p.Name)
		b.Content = append(b.Content, p)
	}
	if res.StructuredContent != nil {
		data, err := json.Marshal(res.StructuredContent)
		if err != nil {
			return tool.Result{}, fmt.Errorf("its structured content: %w", err)
		}
		b.Structured, size = data, size+len(data)
	}
	if size > MaxResult {
		return tool.Result{}, tooLarge(s, size, "bytes", MaxResult)
	}
	if len(b.Content) == 1 && b.Content[0].Type == "text" {
		b.Text, b.Content = b.Content[0].Text, nil
		if b.Structured != nil && sameJSON(b.Text, b.Structured) {
			b.Text = "" // servers say it twice
		}
	}
	if res.IsError {
		b.OK = new(bool)
		if b.Text == "" && b.Content == nil && b.Structured == nil {
			b.Text = "the tool reported an error without a text"
		}
	}
	return tool.Result{Body: b, IsError: res.IsError, Images: images}, nil
}

func tooLarge(s *Server, n int, what string, most int) error {
	return &tool.Failure{
		Kind: tool.TooLarge, Detail: s.Name,
		Message: fmt.Sprintf("the result of MCP server %s has %d %s, at most %d are taken; ask for less", s.Name, n, what, most),
	}
}

// sameJSON reports whether a text is the same value as structured content.
func sameJSON(text string, data json.RawMessage) bool {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return false
	}
	again, err := json.Marshal(v)
	return err == nil && bytes.Equal(again, data)
}
