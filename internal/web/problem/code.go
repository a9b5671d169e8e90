package problem

import (
	"net/http"

	"github.com/rathcluster/rath/run"
)

// The codes that only answers over HTTP have, beside those of package run.
const (
	CodeUnauthenticated run.Code = "unauthenticated"    // the request has no valid token or page session
	CodeDenied          run.Code = "denied"             // the caller's role does not include the request
	CodeNoRoute         run.Code = "no_route"           // there is no such address
	CodeMethod          run.Code = "method_not_allowed" // the address has other methods
	CodeMediaType       run.Code = "media_type"         // the body has another type
	CodeRateLimited     run.Code = "rate_limited"       // the token makes too many requests
	CodeMisdirected     run.Code = "misdirected"        // the Host is not this server's
	CodeCrossSite       run.Code = "cross_site"         // another site sent the request, or the form is of another session
	CodeStale           run.Code = "stale"              // the object has changed since the caller saw it
	CodeUnknownWorkflow run.Code = "unknown_workflow"   // as package dispatch has it
)

// row is the answer to errors of one code.
type row struct {
	code   run.Code
	status int
	title  string
	remedy string // for an error without one of its own
	after  int    // seconds
}

// rows are the codes of errors of requests. The other codes are outcomes of runs: as an
// error they are a fault of the server.
var rows = []row{
	{code: run.CodeMalformed, status: http.StatusBadRequest, title: "The request is malformed"},
	{code: run.CodeTooLarge, status: http.StatusRequestEntityTooLarge, title: "The request or the answer is too large"},
	{code: run.CodeUnknownRun, status: http.StatusNotFound, title: "There is no such run", remedy: "list the runs with GET /api/v1/runs"},
	{code: run.CodeNotFound, status: http.StatusNotFound, title: "There is no such object"},
	{code: CodeUnknownWorkflow, status: http.StatusNotFound, title: "No node offers the workflow", remedy: "list the workflows with GET /api/v1/workflows"},
	{code: CodeNoRoute, status: http.StatusNotFound, title: "There is no such address", remedy: "read GET /api/v1/openapi.json"},
	{code: CodeMethod, status: http.StatusMethodNotAllowed, title: "The address has no such method"},
	{code: CodeMediaType, status: http.StatusUnsupportedMediaType, title: "The body has another type", remedy: "send application/json"},
	{code: run.CodePruned, status: http.StatusGone, title: "The run is archived", remedy: "import its archive"},
	{code: run.CodeArchived, status: http.StatusGone, title: "The session is archived", remedy: "import its archive"},
	{code: run.CodeKeyReused, status: http.StatusConflict, title: "The id names another task", remedy: "choose another id, or send the first body again"},
	{code: run.CodeState, status: http.StatusConflict, title: "The present state does not allow the request"},
	{code: run.CodeConflict, status: http.StatusConflict, title: "Another writer was first", remedy: "read the object again, and repeat the request"},
	{code: run.CodeClosed, status: http.StatusConflict, title: "The session is closed", remedy: "fork it"},
	{code: run.CodeQuarantined, status: http.StatusConflict, title: "The session is quarantined", remedy: "release it first"},
	{code: run.CodeReview, status: http.StatusConflict, title: "The run needs review", remedy: "resolve it with POST /api/v1/runs/{run}/resolve"},
	{code: CodeStale, status: http.StatusConflict, title: "The object has changed since it was shown", remedy: "read it again, and decide about the present one"},
	{code: CodeUnauthenticated, status: http.StatusUnauthorized, title: "The request is not authenticated", remedy: "send a valid token: Authorization: Bearer rath_..."},
	{code: CodeDenied, status: http.StatusForbidden, title: "The role does not include the request"},
	{code: CodeMisdirected, status: http.StatusMisdirectedRequest, title: "The request is for another address"},
	{code: CodeCrossSite, status: http.StatusForbidden, title: "The request is not from a page of this session"},
	{code: CodeRateLimited, status: http.StatusTooManyRequests, title: "The token makes too many requests", remedy: "wait, and repeat the request", after: 1},
	{code: run.CodeNotSupported, status: http.StatusNotImplemented, title: "The installation does not support the request"},
	{code: run.CodeBusy, status: http.StatusServiceUnavailable, title: "A limit is reached", remedy: "repeat the request later", after: 5},
	{code: run.CodeUnavailable, status: http.StatusServiceUnavailable, title: "The fleet does not answer", remedy: "repeat the request later", after: 2},
	{code: run.CodeTimeout, status: http.StatusGatewayTimeout, title: "The answer took too long", remedy: "repeat the request later", after: 2},
	{code: run.CodeCancelled, status: http.StatusServiceUnavailable, title: "The request was cut off", remedy: "repeat the request", after: 1},
}

// rowOf returns the answer to errors of a code.
func rowOf(code run.Code) row {
	for _, r := range rows {
		if r.code == code {
			return r
		}
	}
	return row{code: code, status: http.StatusInternalServerError, title: "The request failed"}
}
