// Package web groups the packages that serve people and programs over HTTP: access, the
// program interface, events, pages, and doors for the clients of other protocols.
package web
