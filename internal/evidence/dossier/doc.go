// Package dossier makes the evidence of a run: one file, as a page, as Markdown or as
// JSON, that says what the run did and carries the commits that prove it.
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
// Every commit in it is chained to the ones before it by SHA-256; every fork,
// join and rejection names a commit that is in it; no commit is missing in
// between, none is in another place, none comes from elsewhere; each file and
// note that it shows has the digest that a commit names; and everything that
// the page or the text says follows from those commits, except what it marks
// as stated by the exporter. The report names what is stated only, and what the
// commits answer, such as the durability, no statement contradicts.
//
// # What it does not prove
//
//   - A forger who can rewrite all of it, and leaves signatures out, can write another
//     run that is consistent in itself. [VerifyOptions.Trust], whose signatures count,
//     closes that for the commits that the end of the run vouches for: all before it
//     in the home session, and what each of them refers to. [VerifyOptions.Head], a
//     hash that came another way, does the same up to the last commit.
//   - Commits at the end may be missing. Of the home session only Head finds
//     that, because nothing in the document refers to its last commits. Of a
//     branch it is found as far as its parent refers to the branch's commits,
//     and for all branches that are not detached once the run succeeded, but
//     for those of a fan-out, which learn of their end afterwards. A
//     detached session, or a branch that never reported to its fan-out, may be
//     missing altogether: nothing but the step that made it names it.
//     [VerifyOptions.Heads] closes that.
//   - A blob may be left out with a reason that cannot be checked, so that the
//     document shows less. It cannot be replaced.
//   - What the commits say is what the node recorded. That a model really gave
//     an answer, or a clock was right, no hash can show.
//
// The package reads logs and blobs, and it renders and checks. It does not
// upload, redact or decide who may read: a dossier holds the whole text
// of the run's sessions.
//
// Files, the lowest first: text, failure, evidence, facts, archive, plan, check,
// signatures, order, words, steps, instructions, files, blame, branch, blocks, fold, outline, embed, collect,
// html, markdown, verify, tree.
package dossier
