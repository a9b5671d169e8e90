// A client in JavaScript that does the whole way of a change, by messages/FORMAT.md:
// it uploads a directory, submits a task, prints what comes, turns one patch down,
// approves the next, writes the changed files back, checks the chain and the signature
// of the log, and says which call wrote a line.
//
//   node client.mjs ADDRESS TENANT DIRECTORY SIGNERS
//
// Ana may submit and Bob approve; their passwords are in ANA and BOB.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { lstatSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { decompress } from "fzstd";
import { connect } from "nats";

const [servers, tenant, dir, signers] = process.argv.slice(2), id = "js";
const ana = { user: "ana", nc: await connect({ servers, user: "ana", pass: process.env.ANA }) };
const bob = { user: "bob", nc: await connect({ servers, user: "bob", pass: process.env.BOB }) };
const sum = (data) => createHash("sha256").update(data).digest("hex");
const ask = async (subject, body, { nc } = ana) => {
  const answer = (await nc.request("rath." + subject, JSON.stringify(body), { timeout: 30_000 })).json();
  if (answer.error && !answer.state) throw new Error(subject + ": " + JSON.stringify(answer));
  return answer;
};
const query = (verb, body = {}) => ask(`query.${tenant}.${verb}`, body);
const control = (who, rest, body) => ask(`ctl.${tenant}.${who.user}.${rest}`, body, who);

// Files: blobs by their digests, and a manifest that names them.
const put = async (data) => {
  await control(ana, `blob.${sum(data)}.put`, { data: data.toString("base64") });
  return sum(data);
};
const get = async (digest) => Buffer.from((await query("blob", { digests: [digest] })).data, "base64");
const tree = async (head, n = 0, up = "", files = new Map()) => {
  const { entries, dirs, heads, packs } = JSON.parse(await get(head));
  for (const e of entries ?? dirs[n]) {
    const path = e.path ?? up + e.name;
    files.set(path, { ...e, pack: packs?.[e.pack - 1] });
    if (dirs && e.kind === "dir") await tree(e.head ? heads[e.head - 1] : head, e.dir, path + "/", files);
  }
  return files;
};
const read = async ({ size, digest, pack, at = 0, len }) => {
  if (!size) return Buffer.alloc(0);
  if (!pack) return get(digest);
  const data = (await get(pack)).subarray(at, at + len);
  return len === size ? data : Buffer.from(decompress(data));
};
const text = async (head, path) => {
  const entry = head && (await tree(head)).get(path);
  return entry?.digest ? (await read(entry)).toString() : "";
};

const files = new Map(), entries = readdirSync(dir, { recursive: true }).filter((p) => !p.endsWith(".log"))
  .sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))).map((path) => {
    if (lstatSync(`${dir}/${path}`).isDirectory()) return { path, kind: "dir" };
    const data = readFileSync(`${dir}/${path}`), digest = sum(data);
    files.set(digest, data);
    return { path, kind: "file", size: data.length, digest };
  });
const { missing } = await query("missing", { digests: [...files.keys()] });
for (const digest of missing) await put(files.get(digest));
const workspace = await put(Buffer.from(JSON.stringify({ format: 1, entries })));

// Submit and watch. A question that comes is answered.
const answer = async () => {
  const run = await query("run", { run: id });
  for (const wait of (run.state === "waiting" && run.waits) || []) {
    if (wait.kind !== "approval") continue;
    const patch = run.details[wait.step];
    console.log(`${wait.title}\n${patch}`);
    if (patch.includes("+Hello, world!")) await control(bob, `${id}.approve`, { step: wait.step, id: "yes" + wait.step });
    else await control(bob, `${id}.reject`, { step: wait.step, reason: "Name the world.", id: "no" + wait.step });
  }
};
const events = ana.nc.subscribe(`rath.run.${tenant}.${id}.*`);
await ask(`task.${tenant}.ana.change`, { id, input: "Make greeting.txt friendlier.", workspace });
let result;
const said = new Map(); // what came of a step so far
for await (const m of events) {
  const body = m.json();
  if (m.subject.endsWith(".delta")) {
    said.set(body.step, body.void ? "" : (said.get(body.step) ?? "") + (body.text ?? ""));
  } else if (m.subject.endsWith(".event")) {
    if (body.kind === "model" && said.get(body.step)) console.log(`${body.agent}: ${said.get(body.step)}`);
    if (body.kind === "waiting") await answer();
  }
  else if ((result = body)) break;
}
console.log(result.state);

// Apply: the files that differ.
const before = await tree(workspace), after = await tree(result.workspace);
for (const [path, entry] of after) {
  if (entry.kind !== "file" || entry.digest === before.get(path)?.digest) continue;
  writeFileSync(`${dir}/${path}`, await read(entry));
  console.log(`${path}: written`);
}

// Verify: each commit names the hash of the one before, and the signature stands for the
// last one.
const records = [];
for (let cursor = "", page; ; cursor = page.next) {
  page = await query("lineage", { session: result.chain.session, cursor });
  records.push(...page.records.map((r) => r.record));
  if (!page.more) break;
}
const logs = new Set(records.map((r) => r.session));
for (const session of logs) {
  let prev = "0".repeat(64), at;
  do {
    const page = await query("commits", { session, at });
    for (const { commit } of page.commits) {
      if (JSON.parse(commit).prev !== prev) throw new Error(`${session}: the chain is broken`);
      prev = sum(commit);
      if (session === result.chain.session && JSON.parse(commit).seq === result.chain.seq && prev !== result.chain.hash) throw new Error("it ended otherwise");
    }
    at = page.next;
  } while (at);
}
console.log(`chain: ${logs.size} logs hold together`);
if (!result.statement.includes(`chain ${result.chain.hash}\n`)) throw new Error("the statement is of another log");
writeFileSync("js.sig", result.signature);
const checked = spawnSync("ssh-keygen", ["-Y", "verify", "-f", signers, "-I", "rath", "-n", "rath", "-s", "js.sig"], { input: result.statement });
console.log(`${checked.stdout}${checked.stderr}`.trim());
if (checked.status !== 0) process.exit(1);

// Why: the last record that changed files so that they have the line.
const first = async (head) => (await text(head, "greeting.txt")).split("\n")[0];
let wrote;
for (const r of records) {
  if (r.head_before && (await first(r.head_after)) === "Hello, world!" && (await first(r.head_before)) !== "Hello, world!") wrote = r;
}
console.log(`greeting.txt:1 is of ${wrote.agent}, ${wrote.tool} at step ${wrote.step} of run ${wrote.run}`);
await Promise.all([ana.nc.drain(), bob.nc.drain()]);
