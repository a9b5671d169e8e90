// The pages' only script. It adds liveness and keys: each page works without it. It makes
// no markup from data: fragments come from the server's templates through one policy, and
// drafts are set as text.
"use strict";
(() => {
  const policy = window.trustedTypes
    ? trustedTypes.createPolicy("rath", { createHTML: (fragment) => fragment })
    : { createHTML: (fragment) => fragment };
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const base = document.body.dataset.base;
  const opened = Date.now();

  // ---------- taking in a fragment ----------

  // morph makes an element like a fresh one, and keeps what a user has opened, typed or
  // chosen, and where the focus is.
  function morph(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !(name === "open" || (name === "disabled" && old.dataset.off))) old.removeAttribute(name);
    }
    for (const { name, value } of [...fresh.attributes]) {
      if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    if (old.matches("input, textarea, select") || [...drafts.values()].some((draft) => draft.on === old)) return;
    const named = new Map();
    for (const child of old.children) if (child.id) named.set(child.id, child);
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      const same = next.id ? named.get(next.id) : null;
      if (same && same !== at) old.insertBefore(same, at);
      if (same) {
        at = same.nextSibling;
        morph(same, next);
      } else if (!next.id && at && !at.id && at.nodeType === next.nodeType && at.nodeName === next.nodeName) {
        const here = at;
        at = at.nextSibling;
        if (next.nodeType === Node.ELEMENT_NODE) morph(here, next);
        else if (here.nodeValue !== next.nodeValue) here.nodeValue = next.nodeValue;
      } else {
        old.insertBefore(document.adoptNode(next), at);
      }
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  }

  const main = one("main");
  const part = main && main.dataset.part;
  let reading = false, again = false, lastRead = opened, lastTook = 0, timer = 0;

  async function read() {
    if (reading) {
      again = true;
      return;
    }
    reading = true;
    again = false;
    const began = Date.now();
    try {
      const url = new URL(location.href);
      url.searchParams.set("live", "");
      const answer = await fetch(url, { headers: { Accept: "text/html" }, redirect: "manual", credentials: "same-origin" });
      if (answer.type === "opaqueredirect" || answer.status === 401) return ended();
      if (answer.status >= 500) return offline();
      if (!answer.ok) return;
      const fragment = new DOMParser().parseFromString(policy.createHTML(await answer.text()), "text/html");
      const fresh = one("main", fragment);
      if (!fresh) return;
      told();
      const before = all("#rows > li").length;
      if (!part) morph(main, fresh);
      else if (one(part) && one(part, fresh)) morph(one(part), one(part, fresh));
      if (!main.dataset.events) close(); // the run has ended
      if (current && current.isConnected) current.classList.add("sel");
      seen();
      localTimes();
      const more = all("#rows > li").length - before;
      if (following) toEnd();
      else if (more > 0) rows += more;
      liveness();
      count();
    } catch {
      offline();
    } finally {
      reading = false;
      lastRead = Date.now();
      lastTook = lastRead - began;
      if (again) soon();
    }
  }

  // soon reads the page's live part once, at most every second, and never more than a
  // quarter of the time.
  function soon() {
    if (timer || document.hidden) return;
    const every = Math.max(Number(main.dataset.every) || 1000, 3 * lastTook);
    timer = setTimeout(() => {
      timer = 0;
      read();
    }, Math.max(lastRead + every - Date.now(), 50));
  }

  // ---------- events ----------

  let source = null, opening = false, release = null, lastEvent = Date.now(), over = false;
  const kinds = ["run.started", "step.started", "text.delta", "text.void", "step.done", "question.asked", "question.answered", "branch.started", "branch.ended", "files.changed", "run.ended"];

  // place takes one of four places of this browser: it makes six connections to a server
  // over HTTP/1.1, and pages and answers need some. The page's end frees it, too.
  async function place() {
    if (!navigator.locks) return () => {};
    for (let n = 0; n < 4; n++) {
      const free = await new Promise((taken) => navigator.locks.request("rath stream " + n, { ifAvailable: true }, (lock) => (lock ? new Promise(taken) : taken(null))));
      if (free) return free;
    }
    return null;
  }

  async function open() {
    const wanted = () => main && main.dataset.events && !source && !over && !document.hidden;
    if (opening || !wanted()) return;
    opening = true;
    release = await place();
    opening = false;
    if (!release) {
      setTimeout(open, 5000);
      return soon();
    }
    if (!wanted()) return close();
    source = new EventSource(main.dataset.events);
    source.onopen = () => {
      drafts.clear();
      told();
      liveness();
    };
    source.onerror = () => { // a stream ends with its run, too: the page itself shows whether the server answers
      if (source && source.readyState === EventSource.CLOSED) {
        close();
        setTimeout(open, 5000);
      }
      soon();
    };
    source.addEventListener("session.ended", ended);
    const take = (event) => {
      lastEvent = Date.now();
      let data;
      try {
        data = JSON.parse(event.data);
      } catch {
        return;
      }
      if (data.kind === "text.delta") draft(data);
      else if (data.kind === "text.void") voided(data);
      else soon();
      liveness();
    };
    source.onmessage = take;
    for (const kind of kinds) source.addEventListener(kind, take);
  }

  function close() {
    if (source) source.close();
    if (release) release();
    source = release = null;
  }

  const drafts = new Map(); // of steps: the text that this connection has sent, and the element that shows it

  // draft appends a piece of an answer to the text of its row. A row that is not here yet
  // comes with the next fragment. The first piece of a connection is the text so far.
  function draft(data) {
    if (!data.text || !main.dataset.events.endsWith("/" + data.run)) return;
    const piece = data.text.replace(/[\p{Cc}\p{Cf}]/gu, (c) => (c === "\n" || c === "\t" ? c : "[U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "]"));
    const known = drafts.get(data.step) || { text: data.from > 0 ? "… " : "" };
    known.text += piece;
    drafts.set(data.step, known);
    const row = document.getElementById("step-" + data.step), text = row && one(".drafted", row);
    if (!text || Date.now() - lastRead > 5000) soon();
    if (!text) return;
    if (known.on === text) text.append(piece);
    else text.textContent = known.text;
    known.on = text;
    text.classList.remove("void");
    if (following) toEnd();
  }

  function voided(data) {
    drafts.delete(data.step);
    const row = document.getElementById("step-" + data.step);
    const text = row && one(".drafted", row);
    if (text) text.classList.add("void");
    soon();
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return close();
    open();
    if (main && main.dataset.events) soon();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);

  // ---------- what is known of the connection ----------

  let lost = 0;
  const connection = document.getElementById("connection");
  function remark(bold, text, kind) {
    connection.hidden = false;
    connection.className = "notice bare " + kind;
    one("b", connection).textContent = bold;
    one("i", connection).textContent = text;
  }

  function clock(t) {
    return new Date(t).toLocaleTimeString([], { hour12: false });
  }

  function offline() {
    if (over || document.hidden) return;
    lost = lost || Date.now();
    remark("Not connected since " + clock(lost) + ".", "This page shows what was known then. Answers are not sent until the connection is back.", "retry");
    writes(false);
    liveness();
  }

  function told() {
    if (over) return;
    lost = 0;
    connection.hidden = true;
    writes(true);
  }

  function ended() {
    over = true;
    close();
    remark("Your login has ended.", "The page stays as it was at " + clock(Date.now()) + ".", "fail");
    const link = one("a", connection);
    link.hidden = false;
    link.href = "/login?next=" + encodeURIComponent(location.pathname + location.search);
    writes(false);
  }

  function writes(on) {
    for (const button of all("form[method=post] button")) {
      if (!on && !button.disabled) {
        button.disabled = true;
        button.dataset.off = "1";
      } else if (on && button.dataset.off) {
        button.disabled = false;
        delete button.dataset.off;
      }
    }
  }

  // ---------- following ----------

  let following = false, rows = 0;

  function liveness() {
    const text = document.getElementById("liveness"), button = document.getElementById("follow");
    if (!text || !button || !main.dataset.events) return;
    button.hidden = false;
    const age = Math.round((Date.now() - lastEvent) / 1000);
    text.firstChild.textContent = lost ? "Not connected" : source ? "Live" : "Read every 5 s";
    while (text.childNodes.length > 1) text.lastChild.remove();
    text.append(lost ? "" : following ? ", following the end" : rows ? ", " + rows + " new rows below" : age > 5 ? ", last event " + age + " s ago" : "");
    button.firstChild.nodeValue = (following ? "Stop following" : "Follow the end") + " ";
  }

  function toEnd() {
    const last = all("#rows > li").pop();
    if (last) last.scrollIntoView({ block: "end" });
  }

  function follow(on) {
    following = on;
    rows = 0;
    if (on) toEnd();
    liveness();
  }

  document.addEventListener("click", (event) => {
    if (event.target.closest("#follow")) follow(!following);
  });
  addEventListener("wheel", (event) => {
    if (event.deltaY < 0 && following) follow(false);
  }, { passive: true });

  // ---------- finding ----------

  const find = document.getElementById("find");
  if (find) find.addEventListener("input", () => {
    const url = new URL(location.href);
    url.searchParams.set("q", find.value);
    if (!find.value) url.searchParams.delete("q");
    url.searchParams.delete("before");
    history.replaceState(null, "", url);
    soon();
  });

  // ---------- forms ----------

  document.addEventListener("submit", (event) => {
    if (event.defaultPrevented || event.target.method !== "post") return;
    if (event.target.dataset.sent) return event.preventDefault(); // a double click
    event.target.dataset.sent = "1";
  });
  addEventListener("pageshow", () => all("form[data-sent]").forEach((form) => delete form.dataset.sent));

  function seen() {
    const box = document.getElementById("seen"), approve = document.getElementById("approve");
    if (box && approve) approve.disabled = !box.checked;
  }

  function count() {
    const form = document.getElementById("chosen");
    if (!form) return;
    const chosen = all("input[name=run]:checked", form);
    document.getElementById("selbar").hidden = !chosen.length;
    const list = one("[data-chosen]", form), sure = one("[data-count]", form);
    if (list) list.textContent = chosen.length ? chosen.map((box) => box.value).slice(0, 5).join(", ") + (chosen.length > 5 ? " and " + (chosen.length - 5) + " more" : "") : "choose with the boxes";
    if (sure) sure.textContent = "Stop " + chosen.length + (chosen.length === 1 ? " run" : " runs");
    for (const row of all("tr[data-row]", form)) row.classList.toggle("sel", Boolean(one("input:checked", row)));
  }
  document.addEventListener("change", () => {
    seen();
    count();
  });

  function localTimes() {
    for (const time of all("time[datetime]")) {
      if (time.dataset.local) continue;
      time.dataset.local = "1";
      time.title = new Date(time.dateTime).toLocaleString() + "\n" + time.title;
    }
  }

  // ---------- keys ----------

  let current = null, prefix = "";

  function move(by) {
    const shown = all("[data-row]").filter((row) => row.offsetParent !== null);
    if (!shown.length) return;
    const at = shown.indexOf(current && current.isConnected ? current : document.activeElement.closest("[data-row]") || one("[aria-current][data-row]"));
    const next = shown[Math.max(0, Math.min(shown.length - 1, at < 0 ? (by > 0 ? 0 : shown.length - 1) : at + by))];
    if (current) current.classList.remove("sel");
    current = next;
    next.classList.add("sel");
    const target = next.matches("a") ? next : one("summary, a, .line", next) || next;
    if (!target.matches("summary, a")) target.tabIndex = -1;
    target.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
    if (document.body.matches(".item, .list") && next.matches("a")) location.assign(next.href);
  }

  const go = (link) => {
    if (link) location.assign(link.href);
    return Boolean(link);
  };
  const focus = (element) => {
    if (element) element.focus();
    return Boolean(element);
  };
  const inRow = (selector) => {
    const row = (current && current.isConnected ? current : document.activeElement.closest("[data-row]")) || null;
    return row ? one(selector, row) : null;
  };
  const unfold = (details) => {
    if (!details) return false;
    details.open = true;
    return focus(one("input:not([type=hidden]), textarea, button", details) || one("summary", details));
  };

  const keys = {
    j: () => move(1),
    k: () => move(-1),
    o: () => go(one("a.torun")),
    "/": () => focus(one("input[type=search]")),
    w: () => go(inRow("a.why")),
    R: () => go(inRow("a.restart")) || focus(one("#restart input:not([type=hidden])")),
    f: () => follow(!following),
    x: () => unfold(one("details.stop")) || unfold(one(".selbar details")),
    m: () => {
      const menu = one(".head .menu:not(.stop)");
      if (menu) menu.open = true;
      return unfold(menu && one("details", menu));
    },
    a: () => focus(document.getElementById("approve")),
    r: () => focus(document.getElementById("reason")),
    e: () => unfold(one("details.editcall")) || focus(document.getElementById("edit")),
    n: () => focus(document.getElementById("seen")),
    " ": () => {
      const box = inRow("input[type=checkbox]");
      if (box) box.click();
      return Boolean(box);
    },
    "?": () => document.getElementById("keys").showModal(),
  };
  for (let n = 1; n <= 5; n++) keys[n] = () => go(all(".filter a")[n - 1]);
  const places = { q: "/questions", r: "/runs", s: "/sessions", f: "/fleet" };

  function back() {
    const menu = all("details.menu[open], details.sheet[open], details.editcall[open]").pop();
    if (menu) {
      menu.open = false;
      one("summary", menu).focus();
    } else if (document.activeElement && document.activeElement !== document.body) {
      document.activeElement.blur();
    } else {
      go(one(".crumb a, .back"));
    }
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    if (event.key === "Escape" && !one("dialog[open]")) return back();
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select");
    if (typing || one("dialog[open]")) return;
    // A held key, or one pressed as the next question opened, answers nothing.
    if (event.repeat && !"jk".includes(event.key)) return;
    if (document.body.classList.contains("item") && Date.now() - opened < 500) return event.preventDefault();
    if (prefix === "g" && places[event.key]) {
      prefix = "";
      event.preventDefault();
      return location.assign(base + places[event.key]);
    }
    prefix = event.key === "g" ? "g" : "";
    const does = keys[event.key];
    if (!does || (event.key === " " && event.target.closest("button, summary, a"))) return;
    if (does() !== false) event.preventDefault();
  });

  // A choice of one menu closes the others.
  document.addEventListener("toggle", (event) => {
    if (!event.target.matches("details.menu") || !event.target.open) return;
    for (const menu of all("details.menu[open]")) if (menu !== event.target && !menu.contains(event.target)) menu.open = false;
  }, true);

  // A link to a row or to the restart opens what it names.
  function unfoldTarget() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const details = target && (target.matches("details") ? target : one("details", target));
    if (details) details.open = true;
    for (let around = target && target.parentElement; around; around = around.parentElement) if (around.matches("details")) around.open = true;
  }
  addEventListener("hashchange", unfoldTarget);

  unfoldTarget();
  seen();
  count();
  localTimes();
  open();
  setInterval(() => {
    liveness();
    if (main && main.dataset.events && Date.now() - lastRead > 10000) soon(); // a run that hangs sends nothing
  }, 1000);
  if (main && main.dataset.events && one("#rows") && !location.hash && !location.search) follow(true);
})();
