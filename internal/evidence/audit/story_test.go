package audit_test

// The whole story: a run with a model call, a non-idempotent call, a rejected branch and a
// joined one; a run that waits for an approver and survives a crash; a fan-out with
// budgets, one branch of which is given up, and a fan-out whose second branch waits for the
// first one's answer; and a run that is cancelled.

const claim = `{"attempt":@a,"epoch":@e,"home":{"session":"@h","tenant":"acme"},"incarnation":"@n","run":"@r","workflow":"fix"}`

// claim makes a claim of a run in a log.
func (l *logbook) claim(run, home, node string) fact {
	if home == l.id || l.runs[run] == 0 {
		l.runs[run]++
	}
	return l.ev("run.claimed", claim, "@a", l.runs[run], "@e", l.epoch, "@h", home, "@n", node, "@r", run)
}

func (l *logbook) submit(run, more string) fact {
	return l.ev("run.submitted", `{"digest":"d-@r","task":{"run":"@r","workflow":"fix"@m}}`, "@r", run, "@m", more)
}

// step is a batch: content and the record of the step.
func (l *logbook) step(run, path, kind, more string, content ...fact) []fact {
	done := l.ev("step.done", `{"attempt":@a,"input":"i","kind":"@k","name":"n","path":"@p","run":"@r"@m}`,
		"@a", l.runs[run], "@k", kind, "@p", path, "@r", run, "@m", more)
	return in(run+"/"+path, append(content, done)...)
}

func (l *logbook) chunk(kind, text string) fact {
	return l.ev("session.chunk", `{"kind":"@k","text":"@t"}`, "@k", kind, "@t", text)
}

func (l *logbook) end(run, state, more string) fact {
	return l.ev("run.ended", `{"attempt":@a,"run":"@r","state":"@s","workflow":"fix"@m}`, "@a", l.runs[run], "@r", run, "@s", state, "@m", more, "@v", l.version)
}

// story writes the streams of a healthy system.
func story(w *world) *world {
	forks(w)
	waits(w)
	fans(w)
	warms(w)
	cancels(w)
	return w
}

const model = `,"row":true,"usage":{"calls":1,"input":100,"output":20}`

func forks(w *world) {
	l := w.log("s1", "s1")
	l.commit(l.open("n1"), l.ev("session.opened", `{"kind":"leaf"}`), l.chunk("user", "hello"), l.submit("r1", `,"budget":{"tokens":1000}`), l.claim("r1", "s1", "n1"))
	l.commit(l.step("r1", "1", "model", model, l.chunk("assistant", "I pay")))
	l.commit(in("r1/2", l.intent("r1", "2", 5000)))
	l.commit(l.step("r1", "2", "tool", `,"call":"r1/2","effect":"non_idempotent","row":true`, l.chunk("tool_result", "{}")))
	l.commit(l.step("r1", "3", "fork", `,"links":[`+unborn("s2", l.version)+`]`))
	base := l.link()
	c := w.log("s2", "s1")
	c.commit(c.open("n1"), c.ev("session.opened", `{"kind":"fork","parents":[@l],"run":"r1","step":"3"}`, "@l", base), c.claim("r1", "s1", "n1"))
	c.commit(c.step("r1", "3.1", "model", model, c.chunk("assistant", "other words")))
	l.commit(l.step("r1", "4", "reject", `,"links":[`+c.link()+`]`, l.ev("session.rejected", `{"branch":@l,"reason":"worse","state":"rejected"}`, "@l", c.link())))
	c.commit(c.ev("session.closed", `{"by":{"session":"s1","tenant":"acme"},"reason":"worse","state":"rejected"}`))
	l.commit(l.step("r1", "5", "fork", `,"links":[`+unborn("s3", l.version)+`]`))
	base = l.link()
	d := w.log("s3", "s1")
	d.commit(d.open("n1"), d.ev("session.opened", `{"kind":"fork","parents":[@l],"run":"r1","step":"5"}`, "@l", base), d.claim("r1", "s1", "n1"))
	big := d.chunk("assistant", "very long")
	big.blob = true
	d.commit(d.step("r1", "5.1", "model", model, big))
	l.commit(l.step("r1", "6", "join", `,"links":[`+d.link()+`]`,
		l.ev("session.joined", `{"parents":[{"from":3,"link":@l,"to":4}],"policy":"adopt","reason":"better"}`, "@l", d.link())))
	d.commit(d.ev("session.closed", `{"by":{"session":"s1","tenant":"acme"},"state":"adopted"}`))
	l.commit(in("r1/end", l.end("r1", "succeeded", `,"output":"I pay","result":`+l.link()+`,"usage":{"calls":3,"input":300,"output":60}`)))
}

func (l *logbook) intent(run, path string, life int64) fact {
	return l.ev("step.intent", `{"attempt":@a,"call":"@r/@p","expires":@x,"input":"i","name":"pay","path":"@p","run":"@r"}`,
		"@a", l.runs[run], "@p", path, "@r", run, "@x", l.w.now+life)
}

const headA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func waits(w *world) {
	l := w.log("t1", "t1")
	l.commit(l.open("n1"), l.ev("session.opened", `{"kind":"leaf"}`), l.submit("q1", ""), l.claim("q1", "t1", "n1"))
	l.commit(l.step("q1", "1", "open", "", l.ev("session.placed", `{"backend":"local","epoch":1,"head":"`+headA+`"}`)))
	l.commit(l.step("q1", "2", "tool", `,"effect":"sandboxed","head_before":"`+headA+`","head_after":"`+headA+`"`))
	l.commit(in("q1/3", l.intent("q1", "3", 5000)))
	// The node dies; whether the call took effect is unknown to the next node.
	l.commit(l.open("n2"), l.claim("q1", "t1", "n2"))
	l.commit(l.ev("run.review", `{"attempt":@a,"code":"needs_review","expires":9795165200000,"path":"3","reason":"cut off","run":"q1"}`, "@a", l.runs["q1"]))
	l.commit(l.ev("run.resolved", `{"decision":"again","path":"3","reason":"not there","run":"q1","says":"ann"}`))
	l.commit(l.claim("q1", "t1", "n2"))
	l.commit(in("q1/3", l.intent("q1", "3", 5000)))
	l.commit(l.step("q1", "3", "do", `,"effect":"non_idempotent","value":"1"`))
	l.commit(l.ev("step.late", `{"attempt":1,"call":"q1/3","effect":"non_idempotent","input":"i","kind":"do","name":"n","path":"3","run":"q1","value":"1"}`))
	l.commit(l.ev("run.waiting", `{"attempt":@a,"for":[{"kind":"approval","path":"4"}],"run":"q1"}`, "@a", l.runs["q1"]))
	l.commit(l.ev("run.received", `{"id":"m1","kind":"message","n":1,"run":"q1","text":"hurry","says":"bob"}`))
	l.commit(l.ev("run.received", `{"kind":"approve","n":2,"path":"4","run":"q1","wake":1,"says":"ann"}`))
	l.commit(l.open("n3"), l.claim("q1", "t1", "n3"))
	l.commit(l.step("q1", "4", "await", `,"value":"true"`))
	l.commit(l.step("q1", "5", "model", model+`,"inbox":1`, l.chunk("user", "hurry"), l.chunk("assistant", "yes")))
	// The network requests of a call that was cut off and is left open.
	asked := l.ev("step.late", `{"attempt":@a,"effect":"sandboxed","input":"i","kind":"tool","name":"n","path":"6","requests":[{"host":"example.org","method":"GET"}],"run":"q1"}`, "@a", l.runs["q1"])
	l.commit(asked, l.ev("run.released", `{"attempt":@a,"reason":"shutdown","run":"q1","workflow":"fix"}`, "@a", l.runs["q1"]))
	l.commit(l.open("n4"), l.claim("q1", "t1", "n4"))
	l.commit(in("q1/end", l.end("q1", "failed", `,"code":"error","error":"it broke","usage":{"calls":1,"input":100,"output":20}`)))
	// The next run of the session.
	l.commit(l.submit("q2", ""), l.claim("q2", "t1", "n4"))
	l.commit(in("q2/end", l.end("q2", "succeeded", "")))
	// A run that resumes on its node: its answer comes with its claim.
	l.commit(l.submit("q3", ""), l.claim("q3", "t1", "n4"))
	l.commit(l.ev("run.waiting", `{"attempt":@a,"for":[{"kind":"approval","path":"0"}],"run":"q3"}`, "@a", l.runs["q3"]))
	l.commit(l.ev("run.received", `{"kind":"approve","n":1,"path":"0","run":"q3","wake":1,"says":"ann"}`), l.claim("q3", "t1", "n4"),
		l.ev("run.received", `{"kind":"message","n":2,"run":"q3","text":"well","says":"bob"}`))
	l.commit(l.step("q3", "0", "await", `,"value":"true"`))
	l.commit(in("q3/end", l.end("q3", "succeeded", "")))
}

func fans(w *world) {
	l := w.log("p1", "p1")
	l.commit(l.open("n1"), l.ev("session.opened", `{"kind":"leaf"}`), l.chunk("user", "go"), l.submit("f1", `,"budget":{"steps":90,"tokens":3000}`), l.claim("f1", "p1", "n1"))
	base := l.link()
	opens := l.ev("run.fanout", `{"ancestors":[{"run":"f1","session":"p1"}],"base":@l,"branches":[{"name":"a","session":"p2"},{"name":"b","session":"p3"},{"name":"c","session":"p4"}],
		"budget":{"steps":10,"tokens":900},"path":"1","root":"p1","run":"f1","workflow":"fix"}`, "@l", base)
	waiting := l.ev("run.waiting", `{"attempt":1,"for":[{"branches":["p2","p3","p4"],"kind":"branches","need":1,"path":"1.gather"}],"run":"f1"}`)
	l.commit(l.step("f1", "1", "fanout", `,"value":"{}"`, opens, waiting))
	for _, b := range []string{"a p2", "b p3", "c p4"} {
		w.branch("f1", "p1", b[:1], b[2:], base, "")
	}
	a, b, c := w.logs["p2"], w.logs["p3"], w.logs["p4"]
	b.commit(in("p3/end", b.end("p3", "failed", `,"code":"error","error":"no","parent":{"path":"1.gather","run":"f1","session":"p1"},"version":@v`)))
	report := l.ev("run.received", `{"branch":{"code":"error","error":"no","link":@l,"state":"failed"},"id":"p3","kind":"branch","n":1,"path":"1.gather","run":"f1"}`, "@l", b.link())
	l.commit(report)
	a.commit(a.step("p2", "1.a.0", "model", model, a.chunk("assistant", "mine")))
	a.commit(in("p2/end", a.end("p2", "succeeded", `,"parent":{"path":"1.gather","run":"f1","session":"p1"},"result":`+a.link()+`,"usage":{"calls":1,"input":100,"output":20},"version":@v`)))
	l.commit(l.ev("run.received", `{"branch":{"link":@l,"state":"succeeded","usage":{"calls":1,"input":100,"output":20}},"id":"p2","kind":"branch","n":2,"path":"1.gather","run":"f1","wake":1}`, "@l", a.link()),
		l.claim("f1", "p1", "n1"))
	outcomes := `[{"link":` + a.link() + `,"name":"a","session":"p2","state":"succeeded"},` +
		`{"code":"error","error":"no","link":` + b.link() + `,"name":"b","session":"p3","state":"failed"},` +
		`{"code":"cancelled","name":"c","session":"p4","state":"cancelled"}]`
	gather := l.step("f1", "1.gather", "gather", `,"usage":{"calls":1,"input":100,"output":20}`,
		l.ev("run.disposed", `{"branches":[{"reason":"enough","session":"p4","state":"cancelled"}],"run":"f1"}`))
	gather[1].data["value"] = outcomes
	l.commit(gather)
	l.commit(l.step("f1", "2", "join", `,"links":[`+a.link()+`]`,
		l.ev("session.joined", `{"parents":[{"from":1,"link":@l,"to":2}],"policy":"since_ancestor"}`, "@l", a.link()),
		l.ev("run.disposed", `{"branches":[{"session":"p2","state":"merged"},{"reason":"failed","session":"p3","state":"failed"}],"run":"f1"}`)))
	a.commit(a.ev("session.closed", `{"by":{"session":"p1","tenant":"acme"},"state":"merged"}`))
	b.commit(b.ev("session.closed", `{"by":{"session":"p1","tenant":"acme"},"reason":"failed","state":"failed"}`))
	c.commit(c.step("p4", "1.c.0", "model", model, c.chunk("assistant", "mine three")))
	c.commit(c.ev("run.cancel_requested", `{"close":"cancelled","reason":"enough","run":"p4"}`))
	c.commit(c.end("p4", "cancelled", `,"code":"cancelled","error":"enough","parent":{"path":"1.gather","run":"f1","session":"p1"},"usage":{"calls":1,"input":100,"output":20},"version":@v`),
		c.ev("session.closed", `{"by":{"session":"p1","tenant":"acme"},"reason":"enough","state":"cancelled"}`))
	result := l.link()
	// The branch that was given up reports its usage late.
	l.commit(l.ev("run.received", `{"branch":{"code":"cancelled","error":"enough","link":@l,"state":"cancelled","usage":{"calls":1,"input":100,"output":20}},"id":"p4","kind":"branch","n":3,"path":"1.gather","run":"f1"}`, "@l", c.link()))
	l.commit(in("f1/end", l.end("f1", "succeeded", `,"result":`+result+`,"usage":{"calls":2,"input":200,"output":40}`)))
}

// warms writes a fan-out whose second branch waits for the first one's answer.
func warms(w *world) {
	l := w.log("u1", "u1")
	l.commit(l.open("n1"), l.ev("session.opened", `{"kind":"leaf"}`), l.chunk("user", "go"), l.submit("w1", `,"budget":{"steps":90,"tokens":3000}`), l.claim("w1", "u1", "n1"))
	base := l.link()
	const said = `{"ancestors":[{"run":"w1","session":"u1"}],"base":@l,"branches":[{"name":"a","session":"u2"},{"name":"b","session":"u3"}],
		"budget":{"steps":10,"tokens":900},"path":"1","root":"u1","run":"w1","warm":true,"workflow":"fix"}`
	waiting := l.ev("run.waiting", `{"attempt":1,"for":[{"branches":["u2","u3"],"kind":"branches","path":"1.gather"}],"run":"w1"}`)
	l.commit(l.step("w1", "1", "fanout", `,"value":"{}"`, l.ev("run.fanout", said, "@l", base), waiting))
	w.branch("w1", "u1", "a", "u2", base, `,"warm":true`)
	a := w.logs["u2"]
	a.commit(a.step("u2", "1.a.0", "model", model, a.chunk("assistant", "mine"), a.ev("run.warmed", `{"parent":{"path":"1.gather","run":"w1","session":"u1"},"run":"u2"}`)))
	l.commit(l.ev("run.spread", said, "@l", base))
	w.branch("w1", "u1", "b", "u3", base, "")
	const tells = `{"branch":{"link":@l,"state":"succeeded","usage":{"calls":1,"input":100,"output":20}},"id":"@i","kind":"branch","n":@n,"path":"1.gather","run":"w1"@w}`
	var outcomes, ends string
	why := map[string]string{"u2": "notes were taken on it", "u3": "notes not taken: it is empty"}
	for i, id := range []string{"u2", "u3"} {
		b := w.logs[id]
		if i == 1 {
			b.commit(b.step("u3", "1.b.0", "model", model, b.chunk("assistant", "mine too")))
		}
		b.commit(in(id+"/end", b.end(id, "succeeded", `,"parent":{"path":"1.gather","run":"w1","session":"u1"},"result":`+b.link()+`,"usage":{"calls":1,"input":100,"output":20},"version":@v`)))
		l.commit(l.ev("run.received", tells, "@l", b.link(), "@i", id, "@n", i+1, "@w", []string{"", `,"wake":1`}[i]))
		outcomes += `,{"link":` + b.link() + `,"name":"` + []string{"a", "b"}[i] + `","session":"` + id + `","state":"succeeded"}`
		ends += `,{"reason":"` + why[id] + `","session":"` + id + `","state":"rejected"}`
	}
	l.commit(l.claim("w1", "u1", "n1"))
	gather := l.step("w1", "1.gather", "gather", `,"usage":{"calls":2,"input":200,"output":40}`, l.ev("run.disposed", `{"branches":[`+ends[1:]+`],"run":"w1"}`))
	gather[1].data["value"] = "[" + outcomes[1:] + "]"
	l.commit(gather)
	for _, id := range []string{"u2", "u3"} {
		b := w.logs[id]
		l.commit(l.ev("session.rejected", `{"branch":@l,"reason":"`+why[id]+`","state":"rejected"}`, "@l", b.link()))
		b.commit(b.ev("session.closed", `{"by":{"session":"u1","tenant":"acme"},"reason":"`+why[id]+`","state":"rejected"}`))
	}
	l.commit(in("w1/end", l.end("w1", "succeeded", `,"result":`+l.link()+`,"usage":{"calls":2,"input":200,"output":40}`)))
}

// branch starts a branch of a fan-out at step 1.
func (w *world) branch(run, home, name, id, base, more string) {
	l := w.log(id, home)
	l.commit(l.open("n2"), l.ev("session.opened", `{"kind":"fork","name":"@n","parents":[@l],"run":"@r","step":"1.@n"}`, "@n", name, "@l", base, "@r", run),
		l.submit(id, `,"branch":{"ancestors":[{"run":"`+run+`","session":"`+home+`"}],"base":`+base+`,"name":"`+name+`","path":"1.`+name+`","root":"`+home+`"`+more+`},"budget":{"steps":10,"tokens":900}`),
		l.claim(id, id, "n2"))
}

func cancels(w *world) {
	l := w.log("c1", "c1")
	l.commit(l.open("n1"), l.ev("session.opened", `{"kind":"leaf"}`), l.submit("k1", ""), l.claim("k1", "c1", "n1"))
	l.commit(l.step("k1", "1", "fork", `,"links":[`+unborn("c2", l.version)+`]`))
	c := w.log("c2", "c1")
	c.commit(c.open("n1"), c.ev("session.opened", `{"kind":"fork","parents":[@l],"run":"k1","step":"1"}`, "@l", l.link()), c.claim("k1", "c1", "n1"))
	l.commit(l.ev("run.cancel_requested", `{"reason":"stop","run":"k1","says":"ann"}`))
	l.commit(in("k1/end", l.end("k1", "cancelled", `,"children":["c2"],"code":"cancelled","error":"stop"`)))
	ended := c.end("k1", "cancelled", `,"code":"cancelled","error":"stop"`)
	ended.child, ended.data["workflow"] = true, ""
	c.commit(c.open("n2"), c.ev("run.cancel_requested", `{"reason":"the run has ended","run":"k1"}`),
		c.ev("session.closed", `{"by":{"session":"c1","tenant":"acme"},"reason":"the run has ended","state":"cancelled"}`), ended)
}
