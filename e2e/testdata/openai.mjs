// A client of OpenAI's protocol: chat completions, responses and a conversation, with a
// question in the middle of each. It prints a transcript.
import OpenAI from "openai";

let lose = false; // the next answer
const lost = [];
const client = new OpenAI({
  fetch: async (url, init) => {
    const answer = await fetch(url, init);
    if (lose) {
      lose = false;
      lost.push((await answer.json()).id);
      throw new Error("the connection broke");
    }
    return answer;
  },
});
const say = (...words) => console.log(...words);
const chatOf = async (model, messages) => {
  const answer = await client.chat.completions.create({ model, messages });
  const { content } = answer.choices[0].message;
  say(`assistant (${answer.choices[0].finish_reason}): ${content}`);
  messages.push({ role: "assistant", content });
  return answer.id;
};
const user = (messages, content) => {
  say("user:", content);
  messages.push({ role: "user", content });
};

say("models:", (await client.models.list()).data.map((m) => m.id).sort().join(" "));
say("model:", (await client.models.retrieve("choose")).object);

say("\n# chat completions: a question");
const chat = [];
user(chat, "A customer, please.");
const asked = await chatOf("choose", chat);
user(chat, "acme");
const answered = await chatOf("choose", chat);
say("the same run:", asked === answered);
user(chat, "Another one.");
await chatOf("choose", chat);

say("\n# chat completions: a stream");
const stream = await client.chat.completions.create({
  model: "talk", stream: true, stream_options: { include_usage: true },
  messages: [{ role: "user", content: "Tell a story, please." }],
});
let text = "", pieces = 0, usage;
for await (const part of stream) {
  pieces += part.choices.length;
  text += part.choices[0]?.delta.content ?? "";
  usage = part.usage ?? usage;
}
say("assistant:", text, "\nseveral pieces:", pieces > 3, "usage:", usage.total_tokens > 0);

say("\n# a retry of the library");
lose = true;
const again = await client.chat.completions.create({ model: "talk", messages: [{ role: "user", content: "Try again." }] });
say("assistant:", again.choices[0].message.content, "\nthe run of the first try:", again.id === lost[0]);

say("\n# responses: an approval");
const events = async (body) => {
  let kinds = [], response;
  for await (const event of await client.responses.create({ stream: true, ...body })) {
    if (event.type !== kinds.at(-1)) kinds.push(event.type);
    response = event.response ?? response;
  }
  say(kinds.join("\n"));
  say("assistant:", response.output.filter((o) => o.type === "message").flatMap((o) => o.content).map((c) => c.text).join(""));
  return response;
};
const first = await events({ model: "deploy", input: "Roll out slug 1.4.2." });
const request = first.output.find((o) => o.type === "mcp_approval_request");
say("asks:", request.name, request.arguments);
const second = await events({
  model: "deploy", previous_response_id: first.id,
  input: [{ type: "mcp_approval_response", approval_request_id: request.id, approve: false, reason: "Not on a Friday." }],
});
say("status:", (await client.responses.retrieve(second.id)).status);

say("\n# responses: in the background");
const background = await client.responses.create({ model: "choose", input: "A customer, please.", background: true });
say("status:", background.status);
let polled;
do polled = await client.responses.retrieve(background.id); while (polled.status !== "completed");
say("assistant:", polled.output_text);
const reply = await client.responses.create({ model: "choose", input: "globex", previous_response_id: background.id });
say("assistant:", reply.output_text);
for await (const item of await client.responses.inputItems.list(background.id)) say("input:", item.role, item.content[0].text);
const left = await client.responses.create({ model: "choose", input: "Nobody, thanks.", background: true });
say("cancelled:", (await client.responses.cancel(left.id)).status);

say("\n# a conversation");
const conversation = await client.conversations.create({});
for (const input of ["Which of them?", "initech", "Try again."]) {
  say("user:", input);
  const model = input === "Try again." ? "talk" : "choose";
  const previous = input === "initech" ? { previous_response_id: asking } : { conversation: conversation.id };
  const answer = await client.responses.create({ model, input, ...previous });
  var asking = answer.id;
  say("assistant:", answer.output_text);
}
say("id:", (await client.conversations.retrieve(conversation.id)).id === conversation.id);
for await (const item of await client.conversations.items.list(conversation.id, { order: "asc", limit: 2 })) {
  say("item:", item.role, item.content.map((c) => c.text).join(""));
}

say("\n# errors");
const fails = async (what, call) => {
  try {
    await call();
    say(what, "did not fail");
  } catch (error) {
    say(`${what}: ${error.constructor.name} ${error.status} ${error.code} ${error.param}`);
  }
};
await fails("no model", () => client.chat.completions.create({ model: "none", messages: [{ role: "user", content: "x" }] }));
await fails("an image", () => client.chat.completions.create({
  model: "talk", messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:image/png;base64,AA==" } }] }],
}));
await fails("no response", () => client.responses.retrieve("resp_none"));
await fails("no token", () => new OpenAI({ apiKey: "rath_none" }).models.list());
