// Package transcript turns sessions into the requests of a model, and judges the answers.
//
// A [Call] is a model call in the code of a workflow. A [Rendering] turns its session
// into messages, so that the next request renders only new rows. [Call.Judge] is the one
// place that decides about an answer: it is accepted, the model is asked to continue, or
// the call fails. When a summary replaces part of a session, [Kept] returns the rows of
// the new session, and [Quote] the text of the replaced part for the model. The package
// works on values alone: it has no execution and calls no model.
//
// Files, the lowest first: model_call, spelt, live_text, transcript, window, kept, repeat,
// judgement, instructions.
package transcript
