// Package openapi has no code: its test plays the tests of the routes over HTTP and compares
// each request and answer with the description that the routes serve, by a library that
// shares no code with Rath. It is a module of its own so that Rath does not depend on the
// library, nor on the versions of other modules that the library needs.
//
//	go test ./...    # in this directory
package openapi
