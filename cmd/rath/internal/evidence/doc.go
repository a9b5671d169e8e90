// Package evidence has the commands about evidence and files: dossiers, archives and
// audits.
//
// Files, the lowest first: script, replacefile, export, signers, archives, prune_table,
// verify, import, audit_report, prune, prune_blobs, audit.
package evidence
