// Package evidence groups the packages that answer questions about recorded runs:
// lineage, dossiers, signatures, views for people, and the auditor.
package evidence
