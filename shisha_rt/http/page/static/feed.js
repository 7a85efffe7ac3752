// The feed of the daemon's page: it comes back by itself, and knows where it was.

/** Which of several models the page is about; null: there is one. */
export const MODEL = new URLSearchParams(location.search).get("model");
const OF_MODEL = MODEL === null ? "" : `&model=${encodeURIComponent(MODEL)}`;
const SILENT_MS = 15000; // something comes each 5 seconds
const CALLER_MS = 5000;
const ORDER_MS = 130000; // the daemon is given 120 s: a plan is answered when it is live
const AGAIN_MS = [500, 1000, 2000, 4000];

/** `heard(name, data)` for each event; `changed(state)`: "live", "silent", "unserved", "gone", "login" or "full". */
export class Feed {
  constructor(heard, changed) {
    this.heard = heard;
    this.changed = changed;
    this.last = "";
    this.failures = 0;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.rest() : this.open()));
  }

  open() {
    this.rest();
    const source = (this.source = new EventSource(`/page/feed?last=${encodeURIComponent(this.last)}${OF_MODEL}`));
    for (const name of ["status", "history", "journal", "trouble"]) {
      source.addEventListener(name, (event) => {
        this.failures = 0;
        if (event.lastEventId) this.last = event.lastEventId;
        this.listen();
        const data = JSON.parse(event.data);
        if (name === "trouble") this.changed(data.kind === "model_gone" ? "unserved" : "silent");
        else if (answers(name, data)) this.changed("live");
        this.heard(name, data);
      });
    }
    source.onerror = () => this.lost();
    this.listen();
  }

  /** Of a page that nobody sees: browsers have few connections to one address, and the daemon has other things to do. */
  rest() {
    clearTimeout(this.timer);
    this.source?.close();
  }

  listen() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.changed("gone");
      this.lost();
    }, SILENT_MS);
  }

  async lost() {
    this.rest();
    const caller = await askCaller();
    const state = caller === null ? "gone" : !caller.may_watch ? "login" : isUnknown(caller) ? "unserved" : caller.is_full ? "full" : "gone";
    this.changed(state);
    if (document.hidden || state === "login") return;
    const wait = AGAIN_MS[Math.min(this.failures++, AGAIN_MS.length - 1)];
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), wait);
  }
}

/** Whether several models are served, and the page's is none of them. */
function isUnknown(caller) {
  return Boolean(caller.models?.length) && !caller.models.includes(MODEL);
}

/** Whether it tells that the daemon answers: a status, or a history that does not end in a gap. */
function answers(name, data) {
  return name === "status" || (name === "history" && (data.samples.at(-1)?.[1] ?? null) !== null);
}

/** Who we are to the daemon; null: it does not answer. */
export async function askCaller() {
  try {
    const answer = await fetch("/page/caller", { cache: "no-store", signal: AbortSignal.timeout(CALLER_MS) });
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

/** Send an order of the page. Returns the answer's fields; raises Error with the daemon's words. */
export async function order(path, fields) {
  let answer;
  try {
    answer = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(fields),
      signal: AbortSignal.timeout(ORDER_MS),
    });
  } catch {
    throw new Error("the daemon does not answer");
  }
  const said = await answer.json().catch(() => ({ error: `HTTP ${answer.status}` }));
  if (!answer.ok) throw new Error(said.error ?? `HTTP ${answer.status}`);
  return said;
}
