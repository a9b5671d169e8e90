// Package archtest holds the tests of the architecture. Packages import only the packages
// that they may. Each package has a doc comment, an entry in ARCHITECTURE.md and, if
// importable, an example. Each module dependency has its reason there, and the files that
// it names exist. No file exceeds 600 lines, no function 80 and no type 30 methods, except
// for listed ones. The exported declarations of importable packages match testdata/api,
// which go test ./internal/archtest -update rewrites, and their comments name no internal
// package. The package has no code of its own.
package archtest
