// Package follow follows a run to its end, or to what a person has to do about it.
package follow
