// Package models reads the list of models that a node may ask: what each name stands
// for, whose key it takes, what it costs, and which model takes its place.
//
// A list is data of the operator. It names keys and never holds one, and money is
// counted in whole micro-USD.
//
// Files, the lowest first: price, retries, failures, thinking, list, clients, parse, public, resolve,
// openrath.
package models
