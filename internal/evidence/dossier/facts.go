package dossier

import (
	"slices"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Facts are the facts in the commits of a run, ready for display: texts of the run
// have no terminal sequences and hidden characters.
type Facts struct {
	Run      run.ID
	Tenant   session.Tenant
	Home     session.ID
	Workflow string
	Revision string
	// State is the run's state at the end of the commits.
	State run.State
	// Verdict is the state in a sentence.
	Verdict string
	Asked   Text // the request: the first message of a user, or the run's input
	Answer  Text // the final answer
	Numbers Numbers

	Submitted, Started, Ended time.Time
	// By is the user who submitted the run, and Via the user who resubmitted it; "" if
	// the commits name none.
	By, Via string
	// Says is the claim of the sender, or of the one who resubmitted the run.
	Says string
	// Took is the time from the first commit of the run to its end, or to the last
	// commit of an open run; Waited is the part of it in which the run waited.
	Took, Waited time.Duration
	Spent        []lineage.Spent
	// Blocks are the steps, folded.
	Blocks []Block

	Sessions   []Session
	Branches   []Branch // of fan-outs, in the order in which they were opened
	Steps      []Step
	Rejections []Rejection
	Changes    Changes
	Memory     []Memory
	Prompts    []Prompt
	// Instructions are the prompts of agents, their tables of tools, and the questions and
	// remarks outside of the rows, each once.
	Instructions []Instruction
	Decisions    []Decision
	Warnings     []Text
	// Environment are the facts in the commits about the run's surroundings.
	Environment []Fact
	// Stated are the exporter's statements that no commit confirms.
	Stated []Fact
	// Signed are the signatures over the run's end in the commits. The facts do not
	// state which keys are trusted.
	Signed []Signed
	// Omitted describes, in words, the contents missing from the document.
	Omitted []string

	Picture *lineage.Picture
}

// Numbers are the totals of a run.
type Numbers struct {
	Sessions   int64 // that the run wrote to
	Commits    int64 // that concern it
	ModelCalls int64
	ToolCalls  int64 // recorded
	Tokens     int64 // input and output of the model calls
	MicroUSD   int64 // the price by the models' servers; 0 where they state none
}

// Session is one session of the evidence.
type Session struct {
	N       int // from 1
	ID      session.ID
	Label   string // as in the picture
	Role    string // "home", "branch", "branch (implicit)", "copy", "concatenation", "summary", "import" or "referred to"
	From    string // "s1 at version 4, commit 7"
	State   string // its disposition; "open"
	Reason  string
	Version session.Version
	Commits uint64
	Last    session.Hash // the head of its hash chain
	Head    blob.Digest  // of its files
	Step    int          // number of its first step in the timeline, 0 for none
}

// Branch is a branch of a fan-out: a run of its own, in a session of its own.
type Branch struct {
	Name     string
	Session  session.ID
	Label    string
	In       int    // number of the session, 0 if it never began
	Workflow string // the workflow it runs by name; "" for a part of its parent's
	State    run.State
	End      string // its outcome for the run that opened it, "" if not recorded
	Reason   string
	Nodes    []string
	Tokens   int64
	Step     int // that opened it
	Decided  int // the step that ended it

	opened, decided stepRef
}

// Step is one line of the timeline: a step of the run, or an event of it.
type Step struct {
	N       int // from 1
	Session session.ID
	Label   string // of the session
	In      int    // number of the session
	Commit  uint64
	Hash    session.Hash
	Time    time.Time
	Kind    string // of the step, or of the event: "user", "run"
	Path    run.Path
	Actor   string
	Text    string // the action or event, one line
	Effect  string // class of a tool's effect
	// Attempts are all attempts at this step in the commits.
	Attempts []Attempt
	Before   blob.Digest // head of the files
	After    blob.Digest
	Elapsed  int64 // milliseconds
	Model    string
	Finish   string // why a model's answer ended, with the server's own word
	Prompt   blob.Digest
	Given    blob.Digest // the list of a model's instructions
	Agent    string      // that asks the model
	Told     []Told      // the parts of the model's request outside of the rows
	Usage    session.Usage
	Code     run.Code
	Error    Text
	Args     Text // of a tool call
	Body     Text // a model's answer, a tool's result, a user's message
	Whole    blob.Ref
	Images   []session.Image // in a tool's result or a user's message
	Late     bool            // of a superseded attempt: kept as evidence, not counted
	Open     bool            // announced without a recorded outcome
	Child    bool            // belongs to the step above it
}

// Attempt is one attempt at a step.
type Attempt struct {
	N    uint64
	What string // "recorded", "announced", "evidence"
}

// Rejection is a rejected branch.
type Rejection struct {
	Session session.ID
	Label   string
	In      int // number of the session, 0 if it is not in the evidence
	State   string
	Reason  string
	Step    int // that decided
}

// Memory is one use of a memory.
type Memory struct {
	Step  int
	Write bool
	Name  string // of the memory
	Notes []Note
	Found blob.Digest // of the stored search result
	// Withheld describes the notes that were found and not recalled: their number per
	// session, and the reason.
	Withheld []string
	Error    string
}

// Note is a note that was found or written.
type Note struct {
	URI  string
	Text string // the found text; of a written note its beginning
}

// Prompt is a rendered request that was sent to a model.
type Prompt struct {
	Digest blob.Digest
	Model  string
	Steps  []int
}

// Told identifies an instruction.
type Told struct {
	What   string
	Digest blob.Digest
}

// Instruction is a part of models' requests outside of the rows of a session, shown once.
type Instruction struct {
	Digest blob.Digest
	What   string // "prompt", "tools", "question" or "remark"; "list" if the list of them is missing
	Agent  string // of the first step
	Text   Text
	Left   string // the reason if the text is missing
	Steps  []int
}

// Decision is an external decision, or the request for one.
type Decision struct {
	Step   int
	What   string
	By     string
	Reason string
}

// Read folds evidence into facts. It checks the commits as [Verify] does and fails
// with a [*Failure].
func Read(e *Evidence) (*Facts, error) {
	_, f, err := e.read()
	return f, err
}

// read is Read; it returns the decoded commits too.
func (e *Evidence) read() (*archive, *Facts, error) {
	a, err := e.open()
	if err != nil {
		return nil, nil, err
	}
	f, err := e.facts(a)
	return a, f, err
}

func (e *Evidence) facts(a *archive) (*Facts, error) {
	var err error
	if err := a.check(); err != nil {
		return nil, err
	}
	if a.marks, err = a.signed(e.Signatures); err != nil {
		return nil, err
	}
	shown := map[blob.Digest]bool{}
	a.shelf = func(d blob.Digest) ([]byte, string, error) {
		shown[d] = true
		if why, ok := e.Left[d]; ok {
			return nil, one(why, 100), nil
		}
		data, ok := e.Blobs[d]
		if !ok {
			return nil, "", fail(Missing, "", 0, "blob %s, which the dossier shows, is not in the evidence", d)
		}
		if got := blob.Sum(data); got != d {
			return nil, "", fail(Blob, "", 0, "a blob has the digest %s instead of %s", got, d)
		}
		return data, "", nil
	}
	f, err := a.facts()
	if err != nil {
		return nil, err
	}
	for _, c := range a.logs {
		for _, facts := range c.facts {
			for _, ev := range facts {
				shown[ev.Blob.Digest] = true
			}
		}
	}
	for _, d := range sorted(e.Blobs) {
		if _, left := e.Left[d]; !shown[d] || left {
			return nil, fail(Foreign, "", 0, "blob %s is in the evidence, but nothing shows it", d)
		}
	}
	for _, d := range sorted(e.Left) {
		if !shown[d] {
			return nil, fail(Foreign, "", 0, "blob %s is named as left out, but nothing would show it", d)
		}
	}
	stated, err := f.unconfirmed(e.Stated)
	if err != nil {
		return nil, err
	}
	for _, s := range stated {
		f.Stated = append(f.Stated, Fact{one(s.Name, 60), one(s.Value, 300)})
	}
	return f, nil
}

// unconfirmed returns the statements that no commit confirms. It fails if a commit
// contradicts one.
func (f *Facts) unconfirmed(stated []Fact) (out []Fact, err error) {
	for _, s := range stated {
		i := slices.IndexFunc(f.Environment, func(e Fact) bool { return e.Name == s.Name })
		switch {
		case i < 0:
			out = append(out, s)
		case f.Environment[i].Value != s.Value:
			return nil, fail(Inconsistent, "", 0, "the exporter states %s %q, its commits say %q", s.Name, clipped(s.Value, ""), f.Environment[i].Value)
		}
	}
	return out, nil
}

// Submitter returns the users who submitted the run, as " by ana" or " by ana, again by
// bob", or "" if the commits name none.
func (f *Facts) Submitter() string {
	if f.By == "" {
		return ""
	}
	return " by " + journal.Submitter(f.By, f.Via, f.Says)
}
