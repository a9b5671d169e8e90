// Package streamstest connects the layers over package streams to embedded servers, for
// their tests.
package streamstest
