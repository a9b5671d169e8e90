package mcptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// word is the first argument of a test binary that is a server.
const word = "serve-mcp"

// Command returns the command of a server in the form of the list of servers: "good",
// "banner", "garbage", "silent", "exits", "tells", "prints", "many", "twins", "odd",
// "former", which speaks the protocol of 2025-11-25, or a key of hostile.
func Command(kind string) string {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	text, err := json.Marshal([]string{exe, word, kind})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Main runs a server and exits, if this process was started as one.
func Main() {
	if len(os.Args) < 3 || os.Args[1] != word {
		return
	}
	if err := serve(os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(kind string) error {
	if hostile[kind] != nil || strings.HasPrefix(kind, flood) {
		return serveHostile(kind)
	}
	switch kind {
	case "banner":
		fmt.Println("Welcome to the server!\n{\"not\": \"a message\"}")
	case "garbage":
		for range 10_000 {
			fmt.Println("\x00\xff no JSON, and much of it")
		}
		time.Sleep(time.Hour)
	case "silent":
		time.Sleep(time.Hour)
	case "exits":
		return errors.New("there is no configuration")
	case "tells": // its secrets, as careless servers do
		return fmt.Errorf("%s\ncannot go on with %s", strings.Repeat("in trouble with "+os.Getenv("SECRET")+"\n", 100), os.Getenv("SECRET"))
	case "prints":
		for range 10_000 {
			fmt.Println("logged in as " + os.Getenv("SECRET"))
		}
		time.Sleep(time.Hour)
	}
	return New(kind).Run(context.Background(), &mcp.StdioTransport{})
}

// Picture is the result of the tool "picture": a GIF of one pixel.
var Picture = []byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x01D\x00;")

// New returns a server of a kind.
func New(kind string) *mcp.Server {
	var o mcp.ServerOptions
	if kind == "former" {
		o.SupportedProtocolVersions = []string{"2025-11-25"}
	}
	s := mcp.NewServer(&mcp.Implementation{Name: kind, Version: "1"}, &o)
	mcp.AddTool(s, &mcp.Tool{Name: "deploy", Description: "Asks where to, and deploys."}, deploy(kind))
	switch kind {
	case "many":
		for i := range 5000 {
			add(s, fmt.Sprintf("tool_%d", i), nil, say)
		}
	case "twins":
		add(s, "a.b", nil, say)
		add(s, "a/b", nil, say)
	}
	if kind == "odd" { // a schema that cannot be checked
		s.AddTool(&mcp.Tool{Name: "odd", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string","pattern":"("}}}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("odd"), nil })
	}
	readOnly := &mcp.ToolAnnotations{ReadOnlyHint: true}
	add(s, "echo", readOnly, say)
	add(s, "run_shell_command", nil, say) // the name of a built-in tool
	add(s, "note", nil, func(in input) (*mcp.CallToolResult, error) { return text("noted"), note(in) })
	add(s, "note_once", &mcp.ToolAnnotations{IdempotentHint: true}, func(in input) (*mcp.CallToolResult, error) { return text("noted"), note(in) })
	die := func(in input) (*mcp.CallToolResult, error) {
		_, missing := os.Stat(in.Unless)
		err := note(in)
		if in.Unless == "" || missing != nil {
			os.Exit(3)
		}
		return text("lives"), err
	}
	add(s, "die", nil, die)
	add(s, "die_read_only", readOnly, die)
	mcp.AddTool(s, &mcp.Tool{Name: "hang"}, func(ctx context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		err := note(in)
		<-ctx.Done()
		return nil, nil, errors.Join(err, ctx.Err())
	})
	mcp.AddTool(s, &mcp.Tool{Name: "slow", Annotations: readOnly}, func(ctx context.Context, r *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Message: "digging", Progress: 2, Total: 4})
		for err == nil && ctx.Err() == nil { // until the file is there
			if _, err := os.Stat(in.Unless); err == nil {
				return text("dug"), nil, nil
			}
			time.Sleep(10 * time.Millisecond)
		}
		return nil, nil, errors.Join(err, ctx.Err())
	})
	add(s, "fails", nil, func(in input) (*mcp.CallToolResult, error) {
		r := text("it failed: " + in.Text)
		r.IsError = true
		return r, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "refuses"}, func(context.Context, *mcp.CallToolRequest, input) (*mcp.CallToolResult, any, error) {
		return nil, nil, &jsonrpc.Error{Code: -32000, Message: "no entry for " + os.Getenv("SECRET")}
	})
	add(s, "environment", readOnly, func(input) (*mcp.CallToolResult, error) { return text(strings.Join(os.Environ(), "\n")), nil })
	add(s, "mixed", readOnly, func(input) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{
			Content: []mcp.Content{
				&mcp.TextContent{Text: "a picture"},
				&mcp.ImageContent{MIMEType: "image/png", Data: []byte("\x89PNG")},
				&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///a", MIMEType: "text/plain", Text: "inside"}},
				&mcp.ResourceLink{URI: "file:///b", Name: "b"},
				&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///d/tape.bin", MIMEType: "application/octet-stream", Blob: []byte("\x00\x01")}},
			},
			StructuredContent: map[string]any{"n": 1},
		}, nil
	})
	add(s, "picture", readOnly, func(input) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.ImageContent{MIMEType: "image/bmp", Data: Picture}, &mcp.ImageContent{MIMEType: "image/svg+xml", Data: []byte("<svg/>")},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///c.gif", MIMEType: "image/gif", Blob: Picture}},
		}}, nil
	})
	add(s, "pieces", readOnly, func(input) (*mcp.CallToolResult, error) {
		r := &mcp.CallToolResult{}
		for range 1001 {
			r.Content = append(r.Content, &mcp.AudioContent{MIMEType: "audio/wav", Data: []byte{}})
		}
		return r, nil
	})
	add(s, "large", readOnly, func(input) (*mcp.CallToolResult, error) { return text(strings.Repeat("x", 5<<20)), nil })
	return s
}

// Where is the schema of the question of the tool "deploy".
const Where = `{"type":"object","properties":{"copies":{"type":"integer","default":2},"place":{"type":"string","enum":["staging","production"],"description":"where to"}},"required":["copies","place"]}`

// deploy records that it begins, asks for a place, and records its deployment.
func deploy(kind string) mcp.ToolHandlerFor[input, any] {
	return func(ctx context.Context, r *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		did := func(what string) error {
			return note(input{File: in.File, Text: what})
		}
		p := &mcp.ElicitParams{Mode: "form", Message: "Deploy " + in.Text + " where?", RequestedSchema: json.RawMessage(Where)}
		if strings.HasPrefix(in.Text, "{") { // it asks for the values of this schema
			p.Message, p.RequestedSchema = "Which?", json.RawMessage(in.Text)
		}
		if in.Text == "page" {
			p = &mcp.ElicitParams{Mode: "url", Message: "Sign in", URL: "https://example.com", ElicitationID: "1"}
		}
		var res *mcp.ElicitResult
		if kind == "former" {
			if err := did("begins"); err != nil {
				return nil, nil, err
			}
			var err error
			if res, err = r.Session.Elicit(ctx, p); err != nil {
				return nil, nil, err
			}
		} else if v, ok := r.Params.InputResponses["where"].(*mcp.ElicitResult); ok {
			res = v
		} else {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"where": p}}, nil, did("begins")
		}
		if res.Action != "accept" {
			return text("told to " + res.Action), nil, did(res.Action)
		}
		if in.Text == "fatal" {
			os.Exit(3)
		}
		what := fmt.Sprintf("deploys %v to %v", res.Content["copies"], res.Content["place"])
		return text(what), nil, did(what)
	}
}

type input struct {
	Text   string `json:"text,omitempty"`
	File   string `json:"file,omitempty"`   // the file that a line is appended to
	Unless string `json:"unless,omitempty"` // this file is there
}

func add(s *mcp.Server, name string, a *mcp.ToolAnnotations, f func(input) (*mcp.CallToolResult, error)) {
	mcp.AddTool(s, &mcp.Tool{Name: name, Description: "The tool " + name + ".", Annotations: a}, func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		r, err := f(in)
		return r, nil, err
	})
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

func say(in input) (*mcp.CallToolResult, error) { return text("you said " + in.Text), nil }

// note adds a line to a file, by which a test counts calls.
func note(in input) error {
	if in.File == "" {
		return nil
	}
	f, err := os.OpenFile(in.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, in.Text)
	return errors.Join(err, f.Close())
}
