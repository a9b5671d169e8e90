// Package helm has no code: it is the tests of the charts in helm/rath and
// helm/accounts, which render them with Helm's own engine and read the result as
// Kubernetes would. It is a module of its own so that Rath does not depend on Helm
// and Kubernetes.
//
//	go test ./...            # in this directory
//	go test ./... -update    # rewrites testdata and the tables of README.md
package helm
