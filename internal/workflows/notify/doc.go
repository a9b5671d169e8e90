// Package notify sends notifications: that a run asks a question, has failed, is stuck or
// reached its budget, and that a task was rejected. An operator's list has the targets, and
// the rules that name a target for the events of a tenant.
//
// A notification is a run of the built-in workflow wire.WorkflowNotify, so that the
// engine repeats it until the target has accepted it. Its id follows from the event and the
// target, and is the same in each attempt: a target that receives a notification twice
// detects it by the id. The notifications of one run to one target are sent in their order.
//
// A notification names the run and has a link. It holds no text of the run.
//
// Files, the lowest first: event, list, rule, message, send, mail, workflow.
package notify
