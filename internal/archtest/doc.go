// Package archtest holds the tests of the architecture: which package may
// import which, that each package says what it is for, and that nothing of the
// place where it was built is in the sources. It has no code of its own.
package archtest
