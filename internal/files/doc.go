// Package files groups the packages for the files of a session: trees by their
// content, names, patterns of ignored files, and commits into Git.
package files
