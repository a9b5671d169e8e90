// Package reference finds what names on the command line stand for: sessions,
// versions and runs.
package reference
