// Package streamstest connects the layers over package streams to embedded servers, for
// their tests.
//
// Files, the lowest first: layer, steps.
package streamstest
