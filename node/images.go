package node

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// checkImages rejects images that are wrong by themselves, before the run begins.
func (in *agentInput) checkImages() error {
	bad := func(field, problem, remedy string) error {
		return &strict.Error{Message: "agent input", Field: field, Problem: problem, Remedy: remedy}
	}
	switch {
	case len(in.Images) > session.MaxImages:
		return bad("images", fmt.Sprintf("%d of them, at most %d are taken", len(in.Images), session.MaxImages), "send fewer")
	case len(in.Images) > 0 && strings.TrimSpace(in.Prompt) == "":
		return bad("images", "there is no prompt that they go with", "say in prompt what to do with them")
	}
	for i, image := range in.Images {
		if _, data, err := imageOf(image); err != nil {
			remedy := "send the digest of a blob, or data:image/png;base64,..."
			if len(data) > 0 { // the error names the remedy for the image
				remedy = ""
			}
			return bad(fmt.Sprintf("images[%d]", i), messages.Text(err), remedy)
		}
	}
	return nil
}

// imageOf reads an image of the input: the digest of its blob, or its bytes.
func imageOf(text string) (d blob.Digest, data []byte, err error) {
	rest, inline := strings.CutPrefix(text, "data:")
	if !inline {
		d, err = blob.ParseDigest(text)
		return d, nil, err
	}
	_, encoded, ok := strings.Cut(rest, ";base64,")
	if !ok {
		return d, nil, errors.New("the data is not in base64")
	}
	if data, err = base64.StdEncoding.Strict().DecodeString(encoded); err != nil {
		return d, nil, errors.New("the data is no base64")
	}
	_, err = session.NewImage(data)
	return d, data, err
}

// attach returns the images of the input as part of a message. It stores images that
// the input contains.
func attach(ctx context.Context, blobs func(session.Tenant) blob.Store, t session.Tenant, images []string) ([]session.Image, error) {
	if len(images) == 0 {
		return nil, nil
	}
	return flow.Do(ctx, "attach", func(ctx context.Context) ([]session.Image, error) {
		var all []session.Image
		for i, image := range images {
			d, data, err := imageOf(image)
			switch {
			case err != nil:
			case data != nil:
				_, err = blobs(t).Put(ctx, bytes.NewReader(data))
			default:
				data, err = readImage(ctx, blobs(t), d)
			}
			var one session.Image
			if err == nil {
				one, err = session.NewImage(data)
			}
			if err != nil {
				return nil, fmt.Errorf("agent input: images[%d]: %w", i, err)
			}
			all = append(all, one)
		}
		return all, nil
	}, tool.Idempotent)
}

// readImage reads a blob up to the largest size of an image.
func readImage(ctx context.Context, b blob.Store, d blob.Digest) ([]byte, error) {
	r, err := b.Get(ctx, d)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, fmt.Errorf("no blob %s is stored for this tenant; store it before the task is sent", d)
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, session.MaxImage+1))
}
