package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/engine/chain"
	"github.com/rathcluster/rath/internal/engine/transcript"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// maxImageBytes bounds the images of a request. The newest are shown; older ones are
// named.
const maxImageBytes = 20 << 20

// show sets the messages of the request for a choice: images with their bytes for a model
// that sees them, or else lines that name them. The messages depend on the session alone,
// so that a repeated request has the same bytes.
func (m *completion) show(c *chain.Choice) error {
	m.req.Messages = m.msgs
	if len(m.c.Images) == 0 {
		return nil
	}
	m.req.Messages = slices.Clone(m.msgs)
	hidden := fmt.Sprintf("model %s cannot see images", c)
	switch {
	case m.blind:
		hidden = "the server refused the request with the images"
	case c.Images:
		hidden = "a request has room for the newest alone"
	}
	left := m.leftOut(c)
	for _, i := range m.c.Images {
		msg := &m.req.Messages[i]
		msg.Images = nil
		for _, img := range m.msgs[i].Images {
			why := hidden
			if left--; left < 0 {
				var err error
				if why, err = m.load(&img); err != nil {
					return err
				}
			}
			if why == "" {
				msg.Images = append(msg.Images, img)
				continue
			}
			msg.Text += fmt.Sprintf("\n[Image not shown, because %s: %s, %d bytes, sha256 %s]", why, img.Type, img.Size, img.Digest)
		}
	}
	return nil
}

// sees reports whether the request shows images.
func (m *completion) sees() bool {
	return slices.ContainsFunc(m.req.Messages, func(msg llm.Message) bool { return len(msg.Images) > 0 })
}

// leftOut returns the number of images, the oldest ones, that are omitted for a choice.
// Over the limit it omits four at a time, so that the requests of the next turns have the
// same prefix.
func (m *completion) leftOut(c *chain.Choice) int {
	var sizes []int64
	for _, i := range m.c.Images {
		for _, img := range m.msgs[i].Images {
			sizes = append(sizes, img.Size)
		}
	}
	if !c.Images || m.blind {
		return len(sizes)
	}
	const step = 4
	out := max(len(sizes)-transcript.MaxImages, 0)
	sum := int64(0)
	for i, size := range slices.Backward(sizes) {
		if sum += size; sum > maxImageBytes {
			out = max(out, i+1)
			break
		}
	}
	return min((out+step-1)/step*step, max(len(sizes)-1, 0))
}

// load reads an image, or returns the reason why it cannot be shown.
func (m *completion) load(img *llm.Image) (why string, err error) {
	d, err := blob.ParseDigest(img.Digest)
	if err != nil {
		return "its digest is none", nil
	}
	data, err := readBlob(m.ctx, m.st.ex.boxes.blobs(), d)
	switch {
	case errors.Is(err, blob.ErrNotFound):
		return "its bytes are not stored", nil
	case errors.Is(err, blob.ErrCorrupt):
		return "its bytes are damaged", nil
	case err != nil:
		return "", fmt.Errorf("flow: read image %s: %w: %w", d.Short(), session.ErrUnavailable, err)
	}
	is, err := session.NewImage(data)
	if err != nil {
		return "it is none that models see", nil
	}
	img.Type, img.Data = is.Type, data
	return "", nil
}
