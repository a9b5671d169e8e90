// Package dossier exports the evidence of a run: one file, as an HTML page, as Markdown or
// as JSON, that shows the run's actions and contains the commits that prove them.
//
//	e, err := dossier.Collect(ctx, log, blobs, home, runID, nil)
//	page, err := dossier.HTML(e)      // or Markdown, or e.Encode
//	...
//	report, err := dossier.Verify(page, &dossier.VerifyOptions{Head: head})
//
// [Evidence] is the run's sessions as the log stores them, byte for byte, with
// the blobs that the rendering shows. [Read] folds it into [Facts]; [HTML] and
// [Markdown] are pure functions of the evidence. [Verify] needs no server: it
// recomputes every hash chain, every reference between sessions and every
// digest, renders the document again and compares it byte for byte.
//
// # What a verified document proves
//
// SHA-256 chains every commit in it to the commits before it. Every fork, join and
// rejection names a commit in the document. No commit in between is missing, moved
// or foreign. Each file and note in it has the digest that a commit names. The rest
// of the page or text follows from those commits, except statements marked as the
// exporter's. The report lists the unconfirmed statements; no statement contradicts
// a fact in the commits, such as the durability.
//
// # What it does not prove
//
//   - A forger who can rewrite the whole document, and omits signatures, can write
//     another consistent run. [VerifyOptions.Trust], the trusted signers, prevents
//     this for the commits that the end of the run vouches for: all commits before
//     it in the home session, and the commits that each of them refers to.
//     [VerifyOptions.Head], a hash from another source, does the same up to the last
//     commit.
//   - Commits at the end may be missing. In the home session only Head detects
//     this, because the document has no reference to the last commits. In a branch
//     it is detected up to the last commit that the parent refers to, and once the
//     run succeeded for all branches except detached ones and those of a fan-out,
//     which receive their end afterwards. A detached session, or a branch that never
//     reported to its fan-out, may be missing altogether: only the step that made it
//     names it. [VerifyOptions.Heads] prevents this.
//   - A blob may be omitted for a reason that cannot be checked, so that the
//     document shows less. It cannot be replaced.
//   - The commits are the node's records. No hash can show that a model really gave
//     an answer, or that a clock was right.
//
// The package reads logs and blobs, renders documents and checks them. It does not
// upload, redact or control access: a dossier contains the whole text of the run's
// sessions.
//
// Files, the lowest first: text, failure, evidence, facts, archive, plan, check,
// signatures, order, words, steps, instructions, files, blame, branch, blocks, fold, outline, embed, collect,
// html, markdown, verify, tree.
package dossier
