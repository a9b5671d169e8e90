package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
)

type viewArgs struct {
	Path string `json:"path" jsonschema:"name of the image, relative to the workspace"`
}

func (in *viewArgs) names() []*string { return []*string{&in.Path} }

type viewBody struct {
	Path  string `json:"path"`
	Type  string `json:"type"`
	Bytes int64  `json:"bytes"`
}

func viewImage() Tool {
	return builtin(ViewImage,
		"Shows you an image of the workspace: a PNG, JPEG, GIF or WebP of at most 3.75 MiB.",
		ReadOnly, nil, view)
}

func view(ctx context.Context, c Call, sb sandbox.Sandbox, in viewArgs) (_ any, err error) {
	f, err := sb.Files().Open(ctx, in.Path)
	if err != nil {
		return nil, pathFailure(in.Path, err)
	}
	defer func() {
		if closeErr := f.Close(); err == nil && closeErr != nil {
			err = pathFailure(in.Path, closeErr)
		}
	}()
	data, err := io.ReadAll(io.LimitReader(f, session.MaxImage+1))
	if err != nil {
		return nil, pathFailure(in.Path, err)
	}
	img, err := KeepImage(ctx, c, data)
	if f, ok := errors.AsType[*Failure](err); ok {
		f.Detail = in.Path
	}
	if err != nil {
		return nil, err
	}
	return Result{Body: viewBody{in.Path, img.Type, img.Size}, Images: []session.Image{img}}, nil
}

// KeepImage stores an image for the Images of a call's Result. Data that is too large, or
// whose contents are not PNG, JPEG, GIF or WebP, is a Failure of kind NotImage.
func KeepImage(ctx context.Context, c Call, data []byte) (session.Image, error) {
	img, err := session.NewImage(data)
	switch {
	case err != nil:
		return img, &Failure{Kind: NotImage, Message: imageProblem(err), Err: err}
	case c.Blobs == nil:
		return img, &Failure{Kind: Unsupported, Message: "images cannot be kept here: nothing stores blobs"}
	}
	if _, err := c.Blobs.Put(ctx, bytes.NewReader(data)); err != nil {
		return img, fmt.Errorf("keep an image of %d bytes: %w", len(data), err)
	}
	return img, nil
}

// imageProblem returns the text of an error of session.NewImage for the model.
func imageProblem(err error) string {
	const prefix = "session: "
	text := err.Error()
	if len(text) > len(prefix) && text[:len(prefix)] == prefix {
		text = text[len(prefix):]
	}
	return text
}
