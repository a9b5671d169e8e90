package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/errors"
	"github.com/pb33f/libopenapi/datamodel"
)

// exchange is a request with its answer, as the tests of the routes record it.
type exchange struct {
	Method, URL     string
	Header, Answer  http.Header
	Body, Answering []byte
	Status          int
}

// described is the path of the description.
const described = "/api/v1/openapi.json"

// noRoute are the codes of answers to requests that the description need not have.
var noRoute = []string{`"code":"no_route"`, `"code":"method_not_allowed"`}

// play plays the tests of the routes and returns their exchanges.
func play(t *testing.T) (all []exchange) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "exchanges")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", ".", "-exchanges", file)
	cmd.Dir = ".." // in the module of the routes
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var e exchange
		if err := d.Decode(&e); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

// load returns the validator of the description among the exchanges.
func load(t *testing.T, all []exchange) validator.Validator {
	t.Helper()
	for _, e := range all {
		if !strings.HasSuffix(e.URL, described) || e.Status != http.StatusOK {
			continue
		}
		c := datamodel.NewDocumentConfiguration()
		c.BasePath = filepath.Join("..", "..", "..", "..", "messages") // its directory schema is served beside the description
		c.AllowFileReferences = true
		doc, err := libopenapi.NewDocumentWithConfiguration(e.Answering, c)
		if err != nil {
			t.Fatal(err)
		}
		v, errs := validator.NewValidator(doc)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if _, errs := v.ValidateDocument(); len(errs) > 0 {
			t.Fatal(text(errs))
		}
		return v
	}
	t.Fatal("nobody has asked for the description")
	return nil
}

// check returns the differences between an exchange and the description. Of a request that
// was refused, only the answer has to be described.
func check(v validator.Validator, e *exchange) (found string) {
	request := func() *http.Request {
		r, err := http.NewRequest(e.Method, e.URL, bytes.NewReader(e.Body)) //nolint:noctx // nobody sends it
		if err != nil {
			panic(err)
		}
		r.Header = e.Header.Clone()
		r.Header.Set("Authorization", "Bearer rath_0") // the tests have a gateway of their own
		return r
	}
	if e.Status < http.StatusBadRequest {
		_, errs := v.ValidateHttpRequestSync(request())
		found += text(errs)
	}
	_, errs := v.ValidateHttpResponse(request(), &http.Response{StatusCode: e.Status, Header: e.Answer, Body: io.NopCloser(bytes.NewReader(e.Answering))})
	return found + text(errs)
}

func text(errs []*errors.ValidationError) string {
	var b strings.Builder
	for _, e := range errs {
		fmt.Fprintf(&b, "%s: %s", e.Message, e.Reason)
		for _, s := range e.SchemaValidationErrors {
			fmt.Fprintf(&b, "; %s at %q", s.Reason, s.FieldPath)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestExchanges: each request and answer of the tests of the routes is as the description
// has it, and changed ones are not.
func TestExchanges(t *testing.T) {
	all := play(t)
	v := load(t, all)
	for i := range all {
		e := &all[i]
		found := check(v, e)
		refused := bytes.Contains(e.Answering, []byte(noRoute[0])) || bytes.Contains(e.Answering, []byte(noRoute[1]))
		if found != "" && !(refused && strings.Contains(found, "not found")) {
			t.Errorf("%s %s: %d %.400s\n%s", e.Method, e.URL, e.Status, e.Answering, found)
		}
	}
	if len(all) < 500 {
		t.Errorf("there are %d exchanges: the test shows little", len(all))
	}
	for name, c := range map[string]struct {
		method, path string
		status       int
		change       func(e *exchange)
	}{
		"a field of another type":     {"GET", "/runs/first/result?wait_s=30", 200, func(e *exchange) { e.replace(t, `"run":"first"`, `"run":1`) }},
		"a field that is missing":     {"GET", "/runs/first/result?wait_s=30", 200, func(e *exchange) { e.replace(t, `"run":"first"`, `"none":"first"`) }},
		"a field of a definition":     {"GET", "/runs/first/result?wait_s=30", 200, func(e *exchange) { e.replace(t, `"calls":1`, `"calls":"1"`) }},
		"another problem":             {"GET", "/api/v1/runs/nothing", 404, func(e *exchange) { e.replace(t, `"status":404`, `"status":"404"`) }},
		"another type of the answer":  {"GET", "/runs/first/result?wait_s=30", 200, func(e *exchange) { e.Answer.Set("Content-Type", "text/plain") }},
		"another method":              {"GET", "/runs/first/result?wait_s=30", 200, func(e *exchange) { e.Method = "PATCH" }},
		"another path":                {"GET", "/runs/first/result?wait_s=30", 200, func(e *exchange) { e.URL = strings.Replace(e.URL, "/result", "/none", 1) }},
		"a parameter of another type": {"GET", "/runs/first/result?wait_s=30", 200, func(e *exchange) { e.URL = strings.Replace(e.URL, "30", "long", 1) }},
		"a body with a wrong field":   {"PUT", "/api/v1/runs/first", 202, func(e *exchange) { e.Body = []byte(`{"workflow":7}`) }},
		"a body with a new field":     {"PUT", "/api/v1/runs/first", 202, func(e *exchange) { e.Body = []byte(`{"workflow":"talk","none":1}`) }},
		"a field of a schema":         {"PUT", "/api/v1/runs/first", 202, func(e *exchange) { e.Body = []byte(`{"workflow":"talk","session":{}}`) }},
	} {
		done := false
		for i := range all {
			if e := all[i]; !done && e.Method == c.method && e.Status == c.status && strings.HasSuffix(e.URL, c.path) {
				e.Answer, done = e.Answer.Clone(), true
				c.change(&e)
				found := check(v, &e)
				t.Logf("%s: %s", name, found)
				if found == "" {
					t.Errorf("%s is not found", name)
				}
			}
		}
		if !done {
			t.Errorf("%s: there is no %s %s: %d", name, c.method, c.path, c.status)
		}
	}
	t.Logf("%d exchanges", len(all))
}

// replace changes the answer.
func (e *exchange) replace(t *testing.T, from, to string) {
	t.Helper()
	if !bytes.Contains(e.Answering, []byte(from)) {
		t.Fatalf("%s has no %s", e.Answering, from)
	}
	e.Answering = bytes.Replace(e.Answering, []byte(from), []byte(to), 1)
}
