// Package evidence has the commands about evidence and files: dossiers, archives and
// audits.
package evidence
