package wire

// WorkflowNotify is the workflow that sends notifications. Lists of runs omit its runs
// unless a filter names a workflow, a run or a session.
const WorkflowNotify = "rath-notify"
