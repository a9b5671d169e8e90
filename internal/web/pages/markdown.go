package pages

import (
	"bytes"
	"html/template"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"

	"github.com/rathcluster/rath/internal/evidence/lineage"
)

// maxMarkdown bounds the texts that are rendered as Markdown; longer ones stand as they
// are.
const maxMarkdown = 32 << 10

// markup is goldmark without raw HTML, images and live links: raw HTML stands as text, an
// image and a link show their targets.
var markup = goldmark.New(
	goldmark.WithExtensions(extension.Table, extension.Strikethrough),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(inert{}, 1))),
)

// markdown renders an agent's answer.
func markdown(s string) template.HTML {
	if len(s) > maxMarkdown {
		return `<p class="pre">` + clipped(s, maxMarkdown) + `</p>`
	}
	var b bytes.Buffer
	if err := markup.Convert([]byte(lineage.Mask(s)), &b); err != nil {
		return `<p class="pre">` + shown(s) + `</p>`
	}
	return template.HTML(b.String()) //nolint:gosec // the renderer writes no text of the source unescaped
}

// inert renders the nodes that carry texts and targets.
type inert struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (inert) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	write := func(w util.BufWriter, s []byte) { _, _ = w.WriteString(string(shown(string(s)))) } // the buffer keeps its error
	lines := func(w util.BufWriter, source []byte, n ast.Node) {
		for i := range n.Lines().Len() {
			line := n.Lines().At(i)
			write(w, line.Value(source))
		}
	}
	r.Register(ast.KindText, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t := n.(*ast.Text); entering {
			write(w, t.Segment.Value(source))
			if t.HardLineBreak() || t.SoftLineBreak() {
				_, _ = w.WriteString("<br>")
			}
		}
		return ast.WalkContinue, nil
	})
	r.Register(ast.KindString, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			write(w, n.(*ast.String).Value)
		}
		return ast.WalkContinue, nil
	})
	r.Register(ast.KindRawHTML, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if raw := n.(*ast.RawHTML); entering {
			for i := range raw.Segments.Len() {
				at := raw.Segments.At(i)
				write(w, at.Value(source))
			}
		}
		return ast.WalkSkipChildren, nil
	})
	r.Register(ast.KindHTMLBlock, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if block := n.(*ast.HTMLBlock); entering {
			_, _ = w.WriteString("<pre>")
			lines(w, source, n)
			if block.HasClosure() {
				write(w, block.ClosureLine.Value(source))
			}
			_, _ = w.WriteString("</pre>")
		}
		return ast.WalkContinue, nil
	})
	code := func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			_, _ = w.WriteString("<pre>")
			lines(w, source, n)
			_, _ = w.WriteString("</pre>")
		}
		return ast.WalkContinue, nil
	}
	r.Register(ast.KindCodeBlock, code)
	r.Register(ast.KindFencedCodeBlock, code)
	target := func(w util.BufWriter, to []byte, entering bool) {
		if entering {
			_, _ = w.WriteString(`<span class="target">`)
			return
		}
		_, _ = w.WriteString(` <code>`)
		write(w, to)
		_, _ = w.WriteString(`</code></span>`)
	}
	r.Register(ast.KindLink, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		target(w, n.(*ast.Link).Destination, entering)
		return ast.WalkContinue, nil
	})
	r.Register(ast.KindImage, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		target(w, n.(*ast.Image).Destination, entering)
		return ast.WalkContinue, nil
	})
	r.Register(ast.KindAutoLink, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			write(w, n.(*ast.AutoLink).URL(source))
		}
		return ast.WalkSkipChildren, nil
	})
}
