// Package web groups the packages that serve people and programs over HTTP: access, the
// program interface, events and pages.
package web
