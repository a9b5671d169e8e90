// Package archtest holds the tests of the architecture: which package may import
// which; that each package says what it is for, stands in ARCHITECTURE.md and, if
// others may import it, has an example; that each module of others has its reason
// there, and the files that it names exist; that no file grows beyond 600 lines, no
// function beyond 80 and no type beyond 30 methods, except for those that are listed;
// and that what other modules may import exports what testdata/api says, which
// go test ./internal/archtest -update rewrites. It has no code of its own.
package archtest
