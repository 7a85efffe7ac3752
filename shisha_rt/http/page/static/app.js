// The page: it draws what the feed tells, and sends what its reader asks for.

import { Charts } from "./charts.js";
import { Control } from "./control.js";
import { byId, duration, el, say } from "./dom.js";
import { prepared } from "./events.js";
import { Feed, MODEL, askCaller, order } from "./feed.js";
import { Figures } from "./figures.js";
import { Journal } from "./journal.js";
import { Pipeline } from "./pipeline.js";
import { Places } from "./places.js";
import { Tuner } from "./tuner.js";

const LINKS = {
  live: "live",
  silent: "the daemon does not answer",
  unserved: "the model is not served",
  gone: "connection lost, trying again",
  full: "too many pages are open",
  login: "log in",
};

const GOES_ON = "What is shown is the last that was said; the page goes on by itself.";

let caller = { may_control: false, reason: "It is not known yet whether you may.", has_login: false };
let last = null;
let version = null;
let sample = null;

const figures = new Figures();
const pipeline = new Pipeline();
const journal = new Journal((event) => charts.highlight(event));
const charts = new Charts((event) => journal.highlight(event));
const tuner = new Tuner();
const control = new Control(send);
const places = new Places(send);
const feed = new Feed(heard, linked);

function heard(name, data) {
  if (name === "status") {
    last = data;
    draw();
  } else if (name === "history") {
    charts.addSamples(data);
    sample = data.samples.at(-1) ?? (data.new ? null : sample);
    figures.show(last?.status, sample);
  } else if (name === "journal") {
    const events = data.events.map(prepared);
    journal.add(data.new, events);
    charts.addEvents(data.new, events);
  } else {
    alarm(data.kind === "model_gone" ? `${data.reason}. Others are named above. ${GOES_ON}` : `The daemon does not answer: ${data.reason}`);
  }
}

function draw() {
  const { status } = last;
  version ??= status.version;
  if (version !== status.version) return location.reload(); // another daemon has another page
  document.title = `${status.model.name} · shisha-rt`;
  say(byId("model"), status.model.name);
  const machine = status.machine;
  const emulated = machine.emulated ? " (emulated)" : "";
  say(byId("machine"), `${status.state} on ${machine.name}${emulated} · ${status.model.layers} layers · ${status.model.engine}`);
  say(byId("foot"), `shisha-rt ${status.version} · process ${status.pid} · up for ${duration(status.uptime_s)} · timing ${machine.timing}${machine.time_scale === 1 ? "" : `, times ${machine.time_scale}`}`);
  alarm(status.fault ? `fault: ${status.fault}` : status.state === "draining" ? "The daemon is stopping: it answers what it has, and takes nothing more." : "");
  figures.show(status, sample);
  pipeline.show(last, sample?.[1] ?? null);
  charts.show(status);
  showWhy(last.drawn.why);
  tuner.show(status);
  showControls();
}

function showWhy([headline, ...steps]) {
  const why = byId("why");
  why.hidden = !steps.length;
  say(why.querySelector("summary"), headline);
  why.querySelector("ul").replaceChildren(...steps.map((step) => el("li", {}, step)));
}

function showControls() {
  if (!last) return;
  control.show(last.status, caller.may_control, caller.reason);
  places.show(last.status, caller.may_control);
}

function alarm(text) {
  byId("alarm").hidden = !text;
  say(byId("alarm"), text);
}

let link = "waiting";

function linked(state) {
  if (state === link) return;
  link = state;
  byId("link").dataset.state = state;
  say(byId("link"), LINKS[state]);
  byId("login").hidden = state !== "login";
  byId("picture").hidden = state === "login";
  document.body.classList.toggle("old", state !== "live" && state !== "login");
  if (state === "live") {
    alarm("");
    recognise();
  } else if (state === "unserved") {
    alarm(`No model ${MODEL} is served here. Others are named above. ${GOES_ON}`);
    recognise();
  } else if (state === "gone") {
    alarm(`The daemon is gone, or starts again. ${GOES_ON}`);
  } else if (state === "full") {
    alarm("As many pages are open as this daemon feeds: close one of them. This one goes on by itself.");
  }
}

/** Ask who we are: another process may answer now, which knows no earlier session. */
async function recognise() {
  caller = (await askCaller()) ?? caller;
  byId("logout").hidden = !(caller.has_login && caller.name);
  say(byId("logout"), `Log out ${caller.name}`);
  byId("models").replaceChildren(...(caller.models ?? []).map(
    (name) => el("a", { href: `/?model=${encodeURIComponent(name)}`, "aria-current": name === MODEL ? "page" : null }, name)));
  showControls();
}

/** `said`: where the answer is told. */
async function send(fields, said) {
  said.dataset.state = "asking";
  say(said, "asking …");
  try {
    const answer = await order("/page/control", MODEL === null ? fields : { ...fields, model_name: MODEL });
    said.dataset.state = "done";
    say(said, answer.outcome ? `${answer.outcome}: ${answer.reason}` : "done");
  } catch (error) {
    said.dataset.state = "refused";
    say(said, error.message);
    recognise();
  }
}

byId("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const said = byId("login").querySelector(".said");
  try {
    await order("/page/login", { token: byId("token").value });
    byId("token").value = "";
    location.reload(); // with several models, to the first one: their names are told only now
  } catch (error) {
    say(said, error.message);
  }
});

byId("logout").addEventListener("click", async () => {
  await order("/page/logout", {}).catch(() => null);
  location.reload();
});

feed.open();
