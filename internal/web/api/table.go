package api

import (
	"net/http"

	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
)

// table returns the rows, in the order of the description.
func (a *API) table() []route {
	const (
		put, post, remove = http.MethodPut, http.MethodPost, http.MethodDelete
	)
	all := []route{
		get("/runs", "List runs, the newest first", "runs.v1", listRuns).takes("after", "limit", "where", "state", "workflow", "by").lets(byItself).serves("ps", "top"),
		act(put, "/runs/{run}", access.VerbSubmit, "Submit a run under an id of your choice; again with the same body is harmless", submission{}, named{}, submit).succeeds(http.StatusAccepted).lets(byItself).serves("submit", "run"),
		get("/runs/{run}", "Read a run", "run.v1", aboutRun(messages.QueryRun)).lets(byRun).serves("show"),
		get("/runs/{run}/result", "Read the result of a run that has ended, after a wait for its end", "result.v1", result).takes("wait_s").lets(byRun).serves("resume"),
		get("/runs/{run}/live", "Read the present state of a run", "live.v1", aboutRun(messages.QueryLive)).lets(byRun).serves("show"),
		get("/runs/{run}/replay", "Compare the code of a workflow with a recorded run", "replay.v1", aboutRun(messages.QueryReplay)).lets(byRun).serves("session replay"),
		get("/runs/{run}/why", "Say where a run, a step of it, or a line of its files comes from", view.Reason{}, why).takes("step", "file", "line").lets(byRun).serves("why", "show"),
		get("/runs/{run}/impact", "Say what a step touched afterwards", view.Impact{}, impact).takes("step").serves("why"),
		get("/runs/{run}/dossier", "Export the evidence of a run, which `rath verify` checks", nil, a.evidence).takes("form").answers("application/json", "text/html; charset=utf-8", "text/markdown; charset=utf-8").lets(byRun).serves("export"),
		get("/runs/{run}/diff", "Show the changes of a run to its files", nil, diffRun).answers(patch).keeps().lets(byRun).serves("diff"),
		act(post, "/runs/{run}/cancel", messages.VerbCancel, "Stop a run", "control.v1", "answer.v1", control(messages.VerbCancel, cancel)).lets(byRun).serves("cancel"),
		act(post, "/runs/{run}/answer", messages.VerbApprove, "Answer a question of a run", answered{}, "answer.v1", answer).lets(byRun).serves("answer"),
		act(post, "/runs/{run}/resolve", messages.VerbResolve, "Decide about a run that needs review", "control.v1", "answer.v1", control(messages.VerbResolve, resolve)).lets(byRun).serves("answer"),
		act(post, "/runs/{run}/message", messages.VerbMessage, "Send a message to a run", "control.v1", "answer.v1", control(messages.VerbMessage, message)).lets(byRun).serves("session message"),
		act(post, "/runs/{run}/rerun", messages.VerbRerun, "Submit the task of a run again", nil, named{}, rerun).lets(byRun).serves("session rerun"),
		act(post, "/runs/{run}/resume", messages.VerbResume, "Continue a run that ended without success, at the step that failed", resuming{}, named{}, resume).lets(byRun).serves("resume"),
		act(post, "/runs/{run}/rewind", access.VerbSubmit, "Submit a task on a session that starts at an earlier version of the run's", rewinding{}, named{}, rewind).succeeds(http.StatusAccepted).lets(byRun).serves("session rewind"),
		act(post, "/runs/{run}/rebudget", messages.VerbRebudget, "Replace the budget of a run", "control.v1", "answer.v1", control(messages.VerbRebudget, rebudget)).lets(byRun).serves("cluster rebudget"),
		act(post, "/runs/{run}/quarantine", messages.VerbQuarantine, "Put the session of a run into quarantine", "control.v1", "answer.v1", control(messages.VerbQuarantine, quarantine)).lets(byRun).serves("cluster quarantine"),
		act(post, "/runs/{run}/release", messages.VerbRelease, "End the quarantine of a run's session", "control.v1", "answer.v1", control(messages.VerbRelease, release)).lets(byRun).serves("cluster release"),

		get("/questions", "List the open questions", questions{}, listQuestions).takes("after", "limit").lets(byItself).serves("answer"),
		get("/questions/{run}/{step}", "Read a question with all that its answer is about", question{}, showQuestion).lets(byRun).serves("answer"),

		get("/sessions", "List the trees of sessions by their oldest session, the newest first", "graph.v1", listSessions).takes("after", "limit").serves("ps"),
		get("/sessions/{session}", "Read a session and a page of its rows", "session.v1", showSession).takes("version", "after", "limit").lets(bySession).serves("show"),
		get("/sessions/{session}/tree", "List the sessions of a session's tree", "graph.v1", showTree).takes("after", "limit", "picture").serves("show"),
		get("/sessions/{session}/lineage", "List the lineage of a session's tree", "lineage.v1", listLineage).takes("after", "limit").serves("cluster tail"),
		get("/sessions/{session}/commits", "Read the stored log of a session", "commits.v1", listCommits).takes("at").lets(bySession).serves("export"),
		get("/sessions/{session}/why", "Say where a session, a version, a row or a line comes from", view.Reason{}, why).takes("version", "row", "file", "line").lets(bySession).serves("why"),
		get("/sessions/{session}/impact", "Say what a version or a row touched afterwards", view.Impact{}, impact).takes("version", "row").serves("why"),
		act(post, "/sessions/{session}/message", messages.VerbSessionMessage, "Send a message to a session", "control.v1", "answer.v1", messageSession).lets(bySession).serves("session message"),
		act(post, "/imports", messages.VerbImport, "Import an archive or a session file", octets, "imported.v1", importSessions).accepts(wire.MaxImport).serves("cluster import"),

		get("/heads/{head}/files", "List the paths of a head", files{}, listFiles).takes("after", "limit").keeps().serves("workspace ls"),
		get("/heads/{head}/file", "Read a file of a head", nil, getFile).takes("path").answers(octets).keeps().serves("workspace get"),
		get("/heads/{head}/diff", "Compare the files of two heads", nil, diffHeads).takes("from").answers(patch).keeps().serves("diff"),
		get("/heads/{head}/tar", "Read the files that `rath apply` would write, and a list of the others", nil, tarHead).takes("from").answers("application/x-tar").keeps().serves("apply"),

		get("/workflows", "List the workflows on offer", "workflows.v1", listWorkflows).lets(byItself).serves("workflows ls"),
		get("/workflows/{workflow}", "Show the offers of a workflow", "workflows.v1", showWorkflow).lets(byItself).serves("workflows show"),
		get("/models", "List the default models of the nodes", models{}, listModels).serves("models ls"),
		get("/tools", "List the tools that programs have announced", "tools.v1", asks(messages.QueryTools)).serves("cluster tools ls"),

		get("/memories", "List the memories", "memory.v1", listMemories).serves("memory ls"),
		get("/memories/{memory}/notes", "List the notes of a memory; after is the name of the last note of the page before", "memory.v1", listNotes).takes("after", "limit", "under").serves("memory ls", "memory export"),
		get("/memories/{memory}/note", "Read a note", "memory.v1", showNote).takes("uri", "level").serves("memory read"),
		get("/memories/{memory}/search", "Find notes by their words", "memory.v1", recall).takes("text", "under", "limit").serves("memory find"),
		act(put, "/memories/{memory}/note", messages.VerbMemoryWrite, "Write a note", "control.v1", "answer.v1", writeNote).serves("memory add"),
		act(remove, "/memories/{memory}/note", messages.VerbMemoryForget, "Remove the notes at and below a name", nil, "answer.v1", forgetNotes).takes("uri").serves("memory forget"),

		act(post, "/events", messages.VerbPublish, "Publish an event for the runs that wait for it", "control.v1", "answer.v1", control(messages.VerbPublish, publish)).serves("event publish"),

		get("/dead-letters", "List the rejected tasks, the oldest first", "dead-letters.v1", listLetters).takes("after", "limit").serves("cluster dlq ls"),
		get("/dead-letters/{letter}", "Read a rejected task", "dead-letter.v1", showLetter).serves("cluster dlq show"),
		act(post, "/dead-letters/{letter}/retry", messages.VerbLetterRetry, "Submit a rejected task again", "control.v1", named{}, retryLetter).serves("cluster dlq retry"),
		act(post, "/dead-letters/{letter}/drop", messages.VerbLetterDrop, "Drop a rejected task", "control.v1", "answer.v1", dropLetter).serves("cluster dlq drop"),

		get("/nodes", "List the nodes, and the usage of the streams", "nodes.v1", asks(messages.QueryNodes)).serves("cluster nodes ls", "doctor"),
		get("/quota", "Read the quota of the tenant and its usage on the current UTC day", messages.Quota{}, asks(messages.QueryQuota)).serves("cluster quota show"),
		get("/nodes/{node}", "Show a node", "node.v1", showNode).serves("cluster nodes show"),
		act(post, "/nodes/{node}/drain", messages.VerbNodeDrain, "Drain a node that no other tenant uses", nil, "answer.v1", drain).serves("cluster nodes drain"),
		get("/lineage", "List the lineage of the tenant", "lineage.v1", listLineage).takes("after", "limit").serves("cluster tail"),
		act(post, "/lineage/repair", messages.VerbRepair, "Derive lost lineage again", nil, repaired{}, repair).accepts(0).serves("cluster repair"),

		get("/openapi.json", "Read this description", nil, a.description).answers("application/json").keeps().lets(byAll),
		get("/schema/{schema}", "Read a schema of a message", nil, a.schema).answers("application/schema+json").keeps().lets(byAll),
	}
	return all
}
