package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/core/schema"
	"github.com/rathcluster/rath/session"
)

var (
	// ErrNameConflict is wrapped by NewTable for two tools with one name.
	ErrNameConflict = errors.New("tool: two tools have one name")
	// ErrSpec is wrapped by NewTable for a tool whose Spec cannot be used.
	ErrSpec = errors.New("tool: unusable spec")
)

// Table holds the tools of one agent. It is immutable and safe for concurrent use.
type Table struct {
	rows []row // sorted by name
}

type row struct {
	tool    Tool
	spec    Spec
	checker *schema.Checker
}

// NewTable checks the tools and their schemas. The error wraps ErrNameConflict and names
// both tools, or wraps ErrSpec and describes the defect.
func NewTable(tools ...Tool) (*Table, error) {
	t := &Table{rows: make([]row, 0, len(tools))}
	for i, tl := range tools {
		if tl == nil {
			return nil, fmt.Errorf("%w: tool %d is nil", ErrSpec, i)
		}
		spec := tl.Spec()
		c, err := spec.check(tl)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrSpec, origin(tl), err)
		}
		t.rows = append(t.rows, row{tl, spec, c})
	}
	slices.SortStableFunc(t.rows, func(a, b row) int { return strings.Compare(a.spec.Name, b.spec.Name) })
	for i := 1; i < len(t.rows); i++ {
		if a, b := t.rows[i-1], t.rows[i]; a.spec.Name == b.spec.Name {
			return nil, fmt.Errorf("%w: %q is %s and %s: rename one or leave one out",
				ErrNameConflict, a.spec.Name, origin(a.tool), origin(b.tool))
		}
	}
	return t, nil
}

// Check returns an error if no table accepts a tool with this spec, because of its name or
// its schema.
func (s Spec) Check() error {
	_, err := s.check(nil)
	return err
}

func (s Spec) check(t Tool) (*schema.Checker, error) {
	if err := checkName(s.Name); err != nil {
		return nil, err
	}
	if _, err := s.Retry.For(s.Effect); err != nil {
		return nil, err
	}
	c, err := checkerOf(t, s)
	if err != nil {
		return nil, fmt.Errorf("schema of %q: %w", s.Name, err)
	}
	return c, nil
}

// checkerOf compiles the schema of a tool, or returns the tool's own checker.
func checkerOf(t Tool, spec Spec) (*schema.Checker, error) {
	if c, ok := t.(interface {
		compiled() (*schema.Checker, error)
	}); ok {
		return c.compiled()
	}
	return schema.Compile(spec.Name, spec.Schema)
}

// checkName accepts the names that every model server accepts.
func checkName(name string) error {
	if len(name) < 1 || len(name) > 64 {
		return fmt.Errorf("name %q has %d characters, want 1 to 64", clip(name, 64), len(name))
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' {
			return fmt.Errorf("name %q has the character %q, want letters, digits, _ and - only", name, r)
		}
	}
	return nil
}

// origin describes the origin of a tool for error messages.
func origin(t Tool) string {
	if o, ok := t.(interface{ origin() string }); ok {
		return o.origin()
	}
	return "a " + reflect.TypeOf(t).String()
}

// Specs returns the tools' specs, sorted by name.
func (t *Table) Specs() []Spec {
	specs := make([]Spec, len(t.rows))
	for i, r := range t.rows {
		specs[i] = r.spec
	}
	return specs
}

// Lookup returns the tool of that name.
func (t *Table) Lookup(name string) (Tool, bool) {
	i, ok := t.find(name)
	if !ok {
		return nil, false
	}
	return t.rows[i].tool, true
}

func (t *Table) find(name string) (int, bool) {
	return slices.BinarySearchFunc(t.rows, name, func(r row, name string) int { return strings.Compare(r.spec.Name, name) })
}

// MaxArguments is the longest text of arguments, in bytes.
const MaxArguments = 1 << 20

// check parses and validates the arguments of a call. An empty text, which models send for
// a tool without arguments, is an empty object.
func check(c *schema.Checker, text string) (json.RawMessage, error) {
	if len(text) > MaxArguments {
		return nil, &Failure{
			Kind: InvalidArguments, Detail: clip(text, maxMessage),
			Message: fmt.Sprintf("the arguments have %d bytes, at most %d are taken: pass large data through a file", len(text), MaxArguments),
		}
	}
	text = cmp.Or(strings.TrimSpace(strings.ToValidUTF8(text, "\ufffd")), "{}")
	args, err := c.Check(text)
	if err != nil {
		return nil, &Failure{Kind: InvalidArguments, Message: err.Error(), Detail: clip(text, maxMessage)}
	}
	return args, nil
}

// Bind finds a tool and checks the text of its arguments; it does not run the tool. It
// returns the arguments as compact JSON, for Run. The error is a *Failure of kind
// UnknownTool or InvalidArguments, which ErrorOutcome turns into the body for the model.
func (t *Table) Bind(name, args string) (Spec, json.RawMessage, error) {
	i, ok := t.find(name)
	if !ok {
		names := make([]string, len(t.rows))
		for i, r := range t.rows {
			names[i] = r.spec.Name
		}
		have := "there are none"
		if len(names) > 0 {
			have = "there are: " + strings.Join(names, ", ")
		}
		return Spec{}, nil, &Failure{
			Kind: UnknownTool, Message: fmt.Sprintf("there is no tool %q; %s", clip(name, 64), have), Detail: clip(name, 64),
		}
	}
	r := t.rows[i]
	checked, err := check(r.checker, args)
	if err != nil {
		return Spec{}, nil, err
	}
	return r.spec, checked, nil
}

// Run runs a tool of the table with c, whose Args must be from Bind, and returns the
// outcome. It does not start the tool if ctx is done.
func (t *Table) Run(ctx context.Context, name string, c Call) Outcome {
	tl, ok := t.Lookup(name)
	if !ok {
		_, _, err := t.Bind(name, "")
		return ErrorOutcome(err)
	}
	body, r, err := run(ctx, tl, c)
	switch {
	case err == nil:
		return Outcome{Body: body, Images: r.Images[:min(len(r.Images), session.MaxImages)], IsError: r.IsError}
	case ctx.Err() != nil:
		return ErrorOutcome(&Failure{
			Kind: Cancelled, Message: "the call was cut off because its run ended or was cancelled", Err: errors.Join(context.Cause(ctx), err),
		})
	}
	return ErrorOutcome(err)
}

// run calls the tool and encodes its result. It converts panics, including those of the
// result's encoder, to errors.
func run(ctx context.Context, t Tool, c Call) (body json.RawMessage, r Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{Value: v, Stack: string(debug.Stack())}
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, r, err
	}
	if r, err = t.Call(context.WithValue(ctx, callKey{}, c), c); err != nil {
		return nil, r, err
	}
	if body, err = schema.Marshal(r.Body); err != nil {
		return nil, r, fmt.Errorf("the result does not encode to JSON: %w", err)
	}
	body, err = fold(ctx, body, c.Blobs)
	return body, r, err
}

// Call binds and runs one call: Bind, then Run.
func (t *Table) Call(ctx context.Context, name, args string, c Call) Outcome {
	_, checked, err := t.Bind(name, args)
	if err != nil {
		return ErrorOutcome(err)
	}
	c.Args = checked
	return t.Run(ctx, name, c)
}
