// Package e2e tests Rath with real processes: it kills them, cuts their power
// and talks to them from other languages. The tests are behind the build tag
// e2e, because they need Linux and root, and Debian's packages for the rest:
//
//	go test -tags=e2e ./e2e/...
//
// Nothing here skips: what is missing fails the test and says what to install.
package e2e
