// The figures at the top: what comes out now, how long a frame takes, and what the plan allows.

import { byId, count, digits, el, milliseconds, percent, say } from "./dom.js";

const energy = ({ energy_j: joules }) => (joules ? ` · ${digits(1e3 * joules)} mJ a frame, described` : "");

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
      tile("rate", "Throughput"), tile("latency", "Latency"), tile("allowed", "Stages allow"),
      tile("load", "Tuned for"), tile("frames", "Answered"));
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
    this.set("allowed", allowed ? `${digits(allowed)}/s` : "–", allowed ? `latency ${milliseconds(status.latency_s)} (unloaded)${energy(status)}` : "not timed yet");
    const tuner = status.tuner;
    const load = tuner.utilisation;
    const isFull = status.frames.in_flight > 2 * new Set(status.plan.stages.flatMap((stage) => stage.places.flat())).size;
    const busy = isFull ? "saturated: frames are waiting" : load === null ? "follows the load" : `load ${percent(load)}`;
    const asked = tuner.objective === "auto" ? busy : "fixed";
    this.set("load", status.objective, asked);
    const { OK: good = 0, ...other } = status.frames.answered;
    const bad = Object.values(other).reduce((sum, number) => sum + number, 0);
    const notes = [`${count(bad)} error${bad === 1 ? "" : "s"}`];
    if (status.frames.replayed) notes.push(`${count(status.frames.replayed)} parts replayed`);
    this.set("frames", count(good), notes.join(" · "));
  }
}
