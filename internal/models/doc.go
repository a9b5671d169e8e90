// Package models reads the list of a node's models: the server, the key, the price and
// the fallback of each name.
//
// A list is data of the operator. It names keys and never holds one, and money is
// counted in whole micro-USD.
//
// Files, the lowest first: price, retries, failures, thinking, list, clients, parse, public, resolve,
// openrath.
package models
