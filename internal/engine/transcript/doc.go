// Package transcript turns sessions into the requests of a model, and judges the answers.
//
// A [Call] is a model call as the code of a workflow asks for it. A [Rendering] turns its
// session into messages, so that the next request renders only new rows. [Call.Judge] is
// the one place that decides about an answer: it is taken, the model is asked on, or the
// call fails. [Kept] and [Quote] are the parts of a session that stay, and are shown, where
// a summary takes the place of the others. The package works on values alone: it has no
// execution and asks no model.
//
// Files, the lowest first: instructions, model_call, spelt, live_text,
// transcript, window, kept, repeat, judgement.
package transcript
