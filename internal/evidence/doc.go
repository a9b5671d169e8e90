// Package evidence groups the packages that answer questions about recorded runs:
// lineage, dossiers, signatures, text views, and the audit.
package evidence
