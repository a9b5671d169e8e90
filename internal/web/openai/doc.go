// Package openai serves Rath to the clients of OpenAI's protocol, below /openai/v1/: models,
// chat completions, responses and conversations. A workflow is a model, a session a
// conversation, and a run a response.
//
//	d := openai.New(&openai.Options{URL: "https://rath.example.com"})
//	parts.Doors = append(parts.Doors, access.Door{Prefix: openai.Prefix, Handler: d, Errors: openai.Errors})
//
// Clients of chat completions send the whole history with each request. A run has the digest
// of the history before its answer as a tag; the digest covers the user and the workflow. So
// the door finds the run whose answer the client shows, on every node and without a store of
// its own. If that answer is the newest, the next run continues its session; a history that
// was changed continues on a fork from the newest answer that agrees.
//
// The ids of runs follow from the request, so that a retry joins the run of the first try.
// A run goes on when its client is gone.
//
// Files, the lowest first: wire (fields and errors), request, history (the run of a
// history), begin (tasks and answers), watch (the updates of a run), serve, chat,
// response, conversation, create.
package openai
