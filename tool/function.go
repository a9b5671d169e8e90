package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rathcluster/rath/internal/core/schema"
)

// FuncOptions configure Func. The zero FuncOptions are the conservative defaults.
type FuncOptions struct {
	Effect Effect
	Lane   func(args json.RawMessage) string // see Spec.Lane
	Retry  *Retry                            // see Spec.Retry
}

// Func returns a tool that calls fn. It infers the schema of the arguments from In, a
// struct or a map with string keys: names are JSON names, a field with omitempty or
// omitzero is optional, and the text of a jsonschema tag is the field's description. The
// result is Out as JSON, or Out itself if it is a Result. Inside fn, Current returns the
// call.
//
// Func panics if In has no schema or the name is invalid, because both are programming
// errors. Nil FuncOptions mean the defaults.
func Func[In, Out any](name, description string, fn func(context.Context, In) (Out, error), o *FuncOptions) Tool {
	if o == nil {
		o = &FuncOptions{}
	}
	if err := checkName(name); err != nil {
		panic("tool.Func: " + err.Error())
	}
	schema, err := schemaOf[In](nil)
	if err != nil {
		panic(fmt.Sprintf("tool.Func: %s takes %T: %v", name, *new(In), err))
	}
	from := "a function"
	if _, file, line, ok := runtime.Caller(1); ok {
		from = filepath.Base(file) + ":" + strconv.Itoa(line)
	}
	spec := Spec{Name: name, Description: description, Schema: schema, Effect: o.Effect, Lane: o.Lane, Retry: o.Retry}
	return newFunction(spec, from, func(ctx context.Context, _ Call, in In) (any, error) { return fn(ctx, in) })
}

func newFunction[In any](spec Spec, from string, fn func(context.Context, Call, In) (any, error)) *function[In] {
	return &function[In]{
		spec: spec, from: from, fn: fn,
		checker: sync.OnceValues(func() (*schema.Checker, error) { return schema.Compile(spec.Name, spec.Schema) }),
	}
}

// function is a tool with arguments of type In.
type function[In any] struct {
	spec Spec
	from string
	fn   func(context.Context, Call, In) (any, error)
	// checker is shared by all tables that hold the tool, because it uses several times the
	// memory of a waiting run.
	checker func() (*schema.Checker, error)
}

func (f *function[In]) Spec() Spec     { return f.spec }
func (f *function[In]) origin() string { return f.from }

func (f *function[In]) compiled() (*schema.Checker, error) { return f.checker() }

// Call implements Tool.
func (f *function[In]) Call(ctx context.Context, c Call) (Result, error) {
	var in In
	if len(c.Args) > 0 {
		err := json.Unmarshal(c.Args, &in)
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			in = *new(In)
			err = json.Unmarshal(wholeNumbers(c.Args), &in)
		}
		if err != nil {
			return Result{}, &Failure{
				Kind: InvalidArguments, Message: "the arguments do not fit: " + err.Error(), Detail: clip(string(c.Args), maxMessage), Err: err,
			}
		}
	}
	out, err := f.fn(ctx, c, in)
	if r, ok := out.(Result); ok {
		return r, err
	}
	return Result{Body: out}, err
}

// wholeNumbers writes 2.0 and 2e3 as 2 and 2000: a schema treats them as integers,
// encoding/json does not.
func wholeNumbers(args json.RawMessage) json.RawMessage {
	var v any
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return args
	}
	var walk func(any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for name := range v {
				v[name] = walk(v[name])
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case json.Number:
			const exact = 1 << 53
			if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") && f == math.Trunc(f) && math.Abs(f) <= exact {
				return int64(f)
			}
		}
		return v
	}
	whole, err := schema.Marshal(walk(v))
	if err != nil {
		return args
	}
	return whole
}

// schemaOf infers the schema of In and lets tune add constraints that Go types cannot
// express.
func schemaOf[In any](tune func(properties map[string]*jsonschema.Schema)) (json.RawMessage, error) {
	s, err := jsonschema.For[In](nil)
	if err != nil {
		return nil, err
	}
	if s.Type != "object" {
		return nil, fmt.Errorf("its schema is no object: want a struct or a map with string keys")
	}
	if tune != nil {
		tune(s.Properties)
	}
	return schema.Marshal(s)
}
