// Package api serves Rath to programs over HTTP: routes below /api/v1/ through which they
// submit runs, answer questions, read sessions, files and evidence, and decide about runs.
//
//	a, err := api.New(&api.Options{Streams: streams})
//	mux.Handle("/api/", authenticated(a))
//
// Each route is a row of one table: its method and address, the verb of the caller's role,
// the messages that it takes and answers, and the commands of rath that it serves. The mux,
// the description in OpenAPI and the list of commands are made of that table. A handler
// decodes, makes one call of package client, and encodes. Most answers are the replies of
// the fleet as they came, so that their schemas are those of package messages.
//
// Package access authenticates requests before they come here, and package problem writes
// the errors. An id of another tenant and an id that never existed give the same answer: the
// subjects of the caller's tenant reach nothing else.
//
// Files, the lowest first: call (a request and its answer), route (a row of the table),
// submission, runs, questions, sessions, target, evidence, files, memories, fleet, events,
// table, commands, schema, openapi, serve.
package api
