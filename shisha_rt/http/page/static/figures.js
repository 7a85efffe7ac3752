// The figures at the top: what comes out now, how long a frame takes, and what the plan allows.

import { byId, count, digits, el, milliseconds, percent, say } from "./dom.js";

export class Figures {
  constructor() {
    this.tiles = {};
    const tile = (name, title) => {
      const value = el("p", { className: "value", textContent: "–" });
      const note = el("p", { className: "quiet note" });
      this.tiles[name] = { value, note };
      return el("div", { className: "tile" }, el("p", { className: "name", textContent: title }), value, note);
    };
    byId("figures").replaceChildren(
      tile("rate", "Throughput"), tile("latency", "Latency"), tile("allowed", "The plan allows"),
      tile("load", "Serves for"), tile("frames", "Answered"));
  }

  set(name, value, note) {
    say(this.tiles[name].value, value);
    say(this.tiles[name].note, note);
  }

  show(status, sample) {
    const known = sample && sample[1] !== null;
    this.set("rate", known ? `${digits(sample[1])}/s` : "–", known ? "in the last second" : "not known yet");
    const hasTime = known && sample[3] !== null;
    this.set("latency", hasTime ? milliseconds(sample[3]) : "–", hasTime ? `99% within ${milliseconds(sample[4])}` : "no frame in the last second");
    if (!status) return;
    const allowed = status.throughput_fps;
    this.set("allowed", allowed ? `${digits(allowed)}/s` : "–", allowed ? `one frame by itself: ${milliseconds(status.latency_s)}` : "its stages are not timed yet");
    const tuner = status.tuner;
    const load = tuner.utilisation;
    const asked = tuner.objective === "auto" ? (load === null ? "as the load asks" : `at a load of ${percent(load)}`) : "as it was told";
    this.set("load", status.objective, asked);
    const { OK: good = 0, ...other } = status.frames.answered;
    const bad = Object.values(other).reduce((sum, number) => sum + number, 0);
    const notes = [bad ? `${count(bad)} not with a result` : "none without a result"];
    if (status.frames.replayed) notes.push(`${count(status.frames.replayed)} parts run again`);
    this.set("frames", count(good), notes.join(" · "));
  }
}
