// Package work has the commands that begin runs, answer them and steer them.
package work
